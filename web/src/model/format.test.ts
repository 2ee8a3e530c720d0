import { describe, expect, it } from 'vitest'
import { clock, command, count, duration, gib, grouped, listed, memory, milliseconds, percent } from './format'

const plain = (text: string): string => text.replaceAll('\u00a0', ' ')

describe('figures', () => {
  it.each([
    [0.94, '94 %'], [0.945, '95 %'], [0, '0 %'], [1, '100 %'], [1.31, '131 %'], [null, '-'], [undefined, '-'], [NaN, '-'], [Infinity, '-'],
  ])('percent %s', (v, want) => expect(plain(percent(v))).toBe(want))

  it.each([
    [0, '0 B'], [1023, '1023 B'], [1024, '1 KiB'], [512 * 2 ** 20, '512 MiB'], [22.5 * 2 ** 30, '22.5 GiB'], [2 ** 40, '1.0 TiB'], [null, '-'],
  ])('memory %s', (v, want) => expect(plain(memory(v))).toBe(want))

  it.each([
    [-5, '0s'], [0, '0s'], [38.9, '38s'], [185, '3m05s'], [599, '9m59s'], [600, '10m'], [3120, '52m'], [8040, '2h14m'], [86399, '23h59m'], [86400 * 3 + 4 * 3600, '3d04h'], [null, '-'],
  ])('duration %s', (v, want) => expect(duration(v)).toBe(want))

  it.each([
    [0.14, '0.1 ms'], [11.8, '11.8 ms'], [38, '38 ms'], [12345, '12,345 ms'], [null, '-'],
  ])('milliseconds %s', (v, want) => expect(plain(milliseconds(v))).toBe(want))

  it('groups, counts and lists', () => {
    expect(grouped(37589)).toBe('37,589')
    expect([0, 1, 2].map((n) => plain(count(n, 'job')))).toEqual(['0 jobs', '1 job', '2 jobs'])
    expect([listed([0, 1]), listed([]), listed(undefined)]).toEqual(['0,1', '-', '-'])
    expect(gib(12.5 * 2 ** 30)).toBe('12.5')
  })

  it('tells the day of what was not today', () => {
    const now = new Date(2026, 10, 30, 14, 32, 7)
    expect(clock(now, now)).toBe('14:32:07')
    expect(clock(new Date(2026, 10, 29, 3, 4, 5), now)).toBe('2026-11-29 03:04:05')
    expect(clock('never', now)).toBe('-')
  })

  it('quotes what a shell would not read as one word', () => {
    expect(command(['python', 'a b.py', "it's", '--lr=1e-3', ''])).toBe(`python 'a b.py' 'it'\\''s' --lr=1e-3 ''`)
  })
})
