import { describe, expect, it } from 'vitest'
import { change, minutes, pages, read, write, zoomed, type Route } from './route'

describe('the address', () => {
  it.each([
    ['', { page: 'now', id: null, query: {} }],
    ['#', { page: 'now', id: null, query: {} }],
    ['#/jobs', { page: 'jobs', id: null, query: {} }],
    ['#/jobs/42?minutes=5', { page: 'jobs', id: 42, query: { minutes: '5' } }],
    ['#/gpus/0', { page: 'gpus', id: 0, query: {} }],
    ['#/jobs/-1', { page: 'jobs', id: null, query: {} }],
    ['#/jobs/1e3', { page: 'jobs', id: null, query: {} }],
    ['#/jobs/9999999999999999', { page: 'jobs', id: null, query: {} }],
    ['#/now/3', { page: 'now', id: null, query: {} }],
    ['#/../../etc?x=%', { page: 'now', id: null, query: { x: '%' } }],
  ] as [string, Route][])('reads %s', (hash, want) => expect(read(hash)).toEqual(want))

  it('reads what it writes', () => {
    const queries = [{}, { q: 'a b&c=d#e?f/ä' }, { sort: '-rate', all: '1' }, { '': 'x', y: '' }]
    for (const page of pages) {
      for (const id of page === 'jobs' || page === 'gpus' ? [null, 0, 7] : [null]) {
        for (const query of queries) expect(read(write({ page, id, query }))).toEqual({ page, id, query })
      }
    }
  })

  it('changes choices and takes them back', () => {
    const route = read('#/jobs?q=x&all=1')
    expect(write(change(route, { q: null, sort: '-rate' }))).toBe('#/jobs?all=1&sort=-rate')
    expect(write(route)).toBe('#/jobs?all=1&q=x')
  })

  it.each([
    ['from=10&to=20', { from: 10, to: 20 }], ['from=20&to=10', null], ['from=10&to=10', null], ['from=x&to=20', null], ['from=10', null], ['from=-5&to=20', null], ['from=10&to=Infinity', null],
  ])('zooms to %s', (query, want) => expect(zoomed(read(`#/now?${query}`))).toEqual(want))

  it('knows three pasts, and may leave the choice', () => {
    expect(['5', '10', '30', '7', ''].map((m) => minutes(read(`#/now?minutes=${m}`)))).toEqual([5, 10, 30, null, null])
  })
})
