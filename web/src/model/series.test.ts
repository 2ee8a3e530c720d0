import { describe, expect, it } from 'vitest'
import type { GPUHistory, History, Lane } from '../api/types'
import { area, covering, ephemeral, extent, last, padded, part, path, rows, runs, stacked, ticks, times } from './series'

const history = (over: Partial<History> = {}): History => ({ schema: 1, until: '2026-11-30T14:00:00Z', step_s: 5, lanes: [], jobs: [], gpus: [], queue: [], token_wait: [], ...over })
const until = Date.parse('2026-11-30T14:00:00Z') / 1000

describe('series', () => {
  it('ends with the latest value', () => {
    expect(times(history(), 3)).toEqual([until - 10, until - 5, until])
    expect(padded([1, 2], 4)).toEqual([null, null, 1, 2])
    expect(padded([1, 2, 3], 2)).toEqual([2, 3])
  })

  it('stacks, and leaves a gap only where nothing is known', () => {
    expect(stacked([[1, null, null], [2, 3, null]])).toEqual([[1, null, null], [3, 3, null]])
    expect(stacked([[5], [1, 2]])).toEqual([[null, 5], [1, 7]])
    expect(stacked([])).toEqual([])
  })

  it('counts as ephemeral what is used beyond the reservations', () => {
    const g: GPUHistory = { gpu: 0, usable_bytes: 10, reserved_bytes: [4, 4, null], in_use_bytes: [3, 6, null], busy_fraction: [] }
    expect(ephemeral(g)).toEqual([0, 2, null])
  })

  it('finds the latest value, unless it is old', () => {
    expect([last([1, 2]), last([1, null, null]), last([1, null, null, null]), last([])]).toEqual([2, 1, null, null])
    expect([extent([null]), extent([1, null, 3])]).toEqual([null, { min: 1, mean: 2, max: 3 }])
    expect(part([1, 2, 3], [7, 8, 9], { from: 2, to: 3 })).toEqual([8, 9])
  })

  it('draws gaps as gaps and what is alone as a dash', () => {
    expect(path([1, 0.5, null, 0], 30, 10, 1)).toBe('M0 0L10 5M30 10h2')
    expect(path([null, null], 10, 10, 1)).toBe('')
    expect(path([2, -1], 10, 10, 1)).toBe('M0 0L10 10')
    expect(area([1, 1], 10, 10, 1)).toBe('M0 10L0 0L10 0L10 10Z')
    expect(runs([null, 1, 2, null, 3])).toEqual([{ from: 1, to: 3 }, { from: 4, to: 5 }])
  })

  it('shows as much as is known', () => {
    const lane: Lane = { gpu: 0, job: 1, name: 'a', class: 'burstable', from_s: 400, to_s: null, moved: false, below: false }
    const spans = [5, 10, 30]
    expect(covering(history(), spans)).toBe(5)
    expect(covering(history({ queue: [{ code: 'Gang', count: Array<number>(360).fill(0) }] }), spans)).toBe(5)
    expect(covering(history({ lanes: [lane] }), spans)).toBe(10)
    expect(covering(history({ lanes: [{ ...lane, from_s: 9000 }] }), spans)).toBe(30)
    expect(covering(history({ queue: [{ code: 'Gang', count: [...Array<number>(240).fill(0), ...Array<number>(120).fill(1)] }] }), spans)).toBe(30)
  })

  it('marks round instants', () => {
    expect(ticks({ from: until - 1800, to: until })).toHaveLength(7)
    for (const length of [5, 60, 777, 1800, 86400]) {
      const list = ticks({ from: until - length, to: until })
      expect(list.length).toBeGreaterThan(0)
      expect(list.length).toBeLessThanOrEqual(13)
      expect(list.every((t) => t >= until - length && t <= until)).toBe(true)
    }
  })
})

describe('lanes', () => {
  const lane = (job: number, from: number, to: number | null, over: Partial<Lane> = {}): Lane => ({ gpu: 0, job, name: `j${job}`, class: 'burstable', from_s: from, to_s: to, moved: false, below: false, ...over })
  const span = { from: until - 100, to: until }

  it('puts what overlaps one below the other, and what does not beside', () => {
    const [row] = rows(history({ lanes: [lane(1, 100, 50), lane(2, 80, null), lane(3, 50, null)] }), [0], span)
    expect(row?.tracks.map((t) => t.map((b) => b.lane.job))).toEqual([[1, 3], [2]])
    expect(row?.tracks[0]?.[0]).toMatchObject({ left: 0, width: 0.5, open: false })
    expect(row?.tracks[0]?.[1]).toMatchObject({ left: 0.5, width: 0.5, open: true })
  })

  it('cuts at the ends of the span and leaves out what is outside', () => {
    const [row, empty] = rows(history({ lanes: [lane(1, 500, 50), lane(2, 500, 200)] }), [0, 1], span)
    expect(row?.tracks).toHaveLength(1)
    expect(row?.tracks[0]).toMatchObject([{ left: 0, width: 0.5 }])
    expect(empty?.tracks).toEqual([[]])
  })

  it('keeps names while time passes, also when the first stay is forgotten', () => {
    const stays = [lane(1, 90, 70), lane(1, 60, 40), lane(1, 30, null)]
    const names = (lanes: Lane[]): string[] => rows(history({ lanes }), [0], span)[0]!.tracks.flat().map((b) => b.key)
    expect(new Set(names(stays)).size).toBe(3)
    expect(names(stays.slice(1))).toEqual(names(stays).slice(1))
  })
})
