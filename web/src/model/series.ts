// From the history as it is told to what charts draw. Times are seconds since 1970.

import type { GPUHistory, History, Lane } from '../api/types'
import type { Span } from './route'

export type Values = readonly (number | null)[]

/** end is the instant up to which a history goes. */
export function end(h: History): number {
  return new Date(h.until).getTime() / 1000
}

/** times are the instants of n values, the last of which is the latest. */
export function times(h: History, n: number): number[] {
  const last = end(h)
  return Array.from({ length: n }, (_, i) => last - (n - 1 - i) * h.step_s)
}

/** covering is the least of some spans in minutes that shows every stay and every wait, and the last where none does. */
export function covering(h: History, spans: readonly number[]): number {
  const waits = h.queue.map((q) => {
    const first = q.count.findIndex((n) => (n ?? 0) > 0)
    return first < 0 ? 0 : q.count.length - first
  })
  const oldest = Math.max(0, ...h.lanes.map((l) => l.from_s), ...waits.map((n) => n * h.step_s))
  return spans.find((minutes) => oldest < minutes * 60) ?? spans.at(-1) ?? 30
}

/** longest is the greatest length of some series. */
export function longest(series: readonly Values[]): number {
  return series.reduce((n, s) => Math.max(n, s.length), 0)
}

/** padded puts nulls before a series that began later, so that it ends with the others. */
export function padded(values: Values, n: number): (number | null)[] {
  return values.length >= n ? values.slice(values.length - n) : [...Array<null>(n - values.length).fill(null), ...values]
}

/** ephemeral is what is used beyond the reservations, step by step. */
export function ephemeral(g: GPUHistory): (number | null)[] {
  const n = longest([g.reserved_bytes, g.in_use_bytes])
  const reserved = padded(g.reserved_bytes, n)
  return padded(g.in_use_bytes, n).map((used, i) => (used === null ? null : Math.max(0, used - (reserved[i] ?? 0))))
}

/** stacked adds each series to those before it. Where one is unknown it counts as nothing, unless all are. */
export function stacked(series: readonly Values[]): (number | null)[][] {
  const n = longest(series)
  const all = series.map((s) => padded(s, n))
  const sum: (number | null)[] = Array<null>(n).fill(null)
  return all.map((s) => {
    s.forEach((v, i) => {
      if (v !== null) sum[i] = (sum[i] ?? 0) + v
    })
    return [...sum]
  })
}

/** last is the latest known value of the last few, and null when it is older. */
export function last(values: Values, within = 3): number | null {
  for (let i = values.length - 1; i >= Math.max(0, values.length - within); i--) {
    const v = values[i]
    if (v !== null && v !== undefined) return v
  }
  return null
}

/** Extent is what a series did: its least, mean and greatest known value. */
export interface Extent {
  min: number
  mean: number
  max: number
}

/** extent is null for a series of which nothing is known. */
export function extent(values: Values): Extent | null {
  const some = values.filter((v): v is number => v !== null)
  if (some.length === 0) return null
  return {
    min: some.reduce((a, b) => Math.min(a, b)),
    mean: some.reduce((a, b) => a + b, 0) / some.length,
    max: some.reduce((a, b) => Math.max(a, b)),
  }
}

/** part is the piece of a series within a span; from and to are in its units of time. */
export function part(x: readonly number[], values: Values, span: Span | null): (number | null)[] {
  return span ? values.filter((_, i) => (x[i] ?? 0) >= span.from && (x[i] ?? 0) <= span.to) : [...values]
}

/** path is the line of a series in a box of a width and a height, top being the greatest: the d of an SVG path. Unknown
 *  values are gaps; a value between two gaps is a short dash. */
export function path(values: Values, width: number, height: number, top: number, n = values.length): string {
  const step = n > 1 ? width / (n - 1) : width
  const offset = n - values.length
  let d = ''
  let open = false
  values.forEach((v, i) => {
    if (v === null) {
      open = false
      return
    }
    const x = (i + offset) * step
    const y = height - (Math.min(Math.max(v, 0), top) / top) * height
    const alone = !open && (values[i + 1] ?? null) === null
    d += `${open ? 'L' : 'M'}${round(x)} ${round(y)}${alone ? `h${round(Math.min(step, 2))}` : ''}`
    open = true
  })
  return d
}

/** area is path, closed down to the floor of the box. */
export function area(values: Values, width: number, height: number, top: number): string {
  const step = values.length > 1 ? width / (values.length - 1) : width
  return runs(values)
    .map(({ from, to }) => {
      const points = values.slice(from, to).map((v, i) => {
        const y = height - (Math.min(Math.max(v ?? 0, 0), top) / top) * height
        return `L${round((from + i) * step)} ${round(y)}`
      })
      return `M${round(from * step)} ${height}${points.join('')}L${round((to - 1) * step)} ${height}Z`
    })
    .join('')
}

/** runs are the stretches of known values: from, and to which is not included. */
export function runs(values: Values): { from: number; to: number }[] {
  const list: { from: number; to: number }[] = []
  values.forEach((v, i) => {
    if (v === null) return
    const run = list.at(-1)
    if (run?.to === i) run.to = i + 1
    else list.push({ from: i, to: i + 1 })
  })
  return list
}

function round(n: number): number {
  return Math.round(n * 10) / 10
}

/** Bar is a stay of a job on a GPU, as shares of the width from the left. */
export interface Bar {
  lane: Lane
  left: number
  width: number
  open: boolean // it still goes on
  key: string // the same for the same stay, however much time passes
}

/** Row is a GPU with its bars, in as many tracks as overlap. */
export interface Row {
  gpu: number
  tracks: Bar[][]
}

/** rows lays the lanes of each GPU out within a span: a bar takes the first track that is free. */
export function rows(h: History, gpus: readonly number[], span: Span): Row[] {
  const until = end(h)
  const width = span.to - span.from
  return gpus.map((gpu) => {
    const tracks: { ends: number; bars: Bar[] }[] = []
    const own = h.lanes.filter((l) => l.gpu === gpu).sort((a, b) => b.from_s - a.from_s || a.job - b.job)
    const keys = named(own)
    for (const [i, lane] of own.entries()) {
      const from = Math.max(span.from, until - lane.from_s)
      const to = Math.min(span.to, until - (lane.to_s ?? 0))
      if (to < from || (to === from && lane.to_s !== null)) continue
      let track = tracks.find((t) => t.ends <= from)
      if (!track) tracks.push((track = { ends: 0, bars: [] }))
      track.ends = to
      track.bars.push({ lane, left: (from - span.from) / width, width: (to - from) / width, open: lane.to_s === null, key: keys[i] ?? '' })
    }
    return { gpu, tracks: tracks.length > 0 ? tracks.map((t) => t.bars) : [[]] }
  })
}

// The stays of a job are counted from its latest: the earliest ones fall out of the history.
function named(own: readonly Lane[]): string[] {
  const stays = new Map<number, number>()
  return own
    .toReversed()
    .map((l) => {
      const n = (stays.get(l.job) ?? 0) + 1
      stays.set(l.job, n)
      return `${l.job}.${n}`
    })
    .toReversed()
}

/** ticks are round instants within a span, some five to seven. */
export function ticks(span: Span): number[] {
  const length = span.to - span.from
  const step = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600].find((s) => length / s <= 6) ?? 7200
  const first = Math.ceil(span.from / step) * step
  return Array.from({ length: Math.floor((span.to - first) / step) + 1 }, (_, i) => first + i * step)
}
