// Each chart in words, for who does not see it and for who wants the figure.

import type { GPUHistory, History, Job } from '../api/types'
import { count, duration, gib, memory, milliseconds, percent } from './format'
import { below } from './jobs'
import { ephemeral, extent, last } from './series'

/** lanes tells of the stays of jobs on GPUs. */
export function lanes(h: History, gpus: readonly number[]): string {
  const now = h.lanes.filter((l) => l.to_s === null)
  const busy = new Set(now.map((l) => l.gpu)).size
  const moved = h.lanes.filter((l) => l.moved).length
  return `${busy} of ${count(gpus.length, 'GPU')} in use by ${count(new Set(now.map((l) => l.job)).size, 'job')}; ${count(h.lanes.length, 'stay')} shown, ${moved} moved.`
}

/** rates tells how the jobs that run do against their floors. */
export function rates(jobs: readonly Job[]): string {
  const seen = jobs.filter((j) => j.state === 'running' && j.rate_fraction !== null)
  if (seen.length === 0) return 'No rate observed yet.'
  const broken = seen.filter(below)
  const worst = seen.reduce((a, b) => ((b.rate_fraction ?? 0) - b.floor < (a.rate_fraction ?? 0) - a.floor ? b : a))
  const head = broken.length === 0 ? `All ${count(seen.length, 'job')} hold their floors` : `${broken.length} of ${count(seen.length, 'job')} below the floor`
  return `${head}; nearest: ${worst.id} ${worst.name}, ${percent(worst.rate_fraction)}, floor ${percent(worst.floor)}.`
}

/** rate tells of one job. */
export function rate(job: Job, values: readonly (number | null)[]): string {
  const seen = extent(values)
  if (!seen) return 'No rate observed yet.'
  const part = `Observed ${percent(seen.min)} to ${percent(seen.max)}, mean ${percent(seen.mean)}; floor ${percent(job.floor)}`
  return `${part}, below it for ${duration(job.below_floor_s)}.`
}

/** memories tells how full the GPUs are. */
export function memories(gpus: readonly GPUHistory[]): string {
  const full = gpus
    .map((g) => ({ g, used: last(g.in_use_bytes) }))
    .filter((x): x is { g: GPUHistory; used: number } => x.used !== null)
    .sort((a, b) => b.used / b.g.usable_bytes - a.used / a.g.usable_bytes)[0]
  if (!full) return 'No memory in use.'
  return `Fullest: gpu${full.g.gpu}, ${gib(full.used)} of ${memory(full.g.usable_bytes)} in use.`
}

/** gpuMemory tells of one GPU. */
export function gpuMemory(g: GPUHistory): string {
  const most = extent(g.in_use_bytes)
  if (!most) return 'No memory in use.'
  return `Reserved ${memory(last(g.reserved_bytes) ?? 0)}, beyond it ${memory(last(ephemeral(g)) ?? 0)}; most in use ${memory(most.max)} of ${memory(g.usable_bytes)}.`
}

/** waits tells how long the classes wait for the token. */
export function waits(h: History): string {
  const parts = h.token_wait.flatMap((w) => {
    const e = extent(w.p99_ms)
    return e ? [`${w.class} ${milliseconds(last(w.p99_ms, w.p99_ms.length))}, at most ${milliseconds(e.max)}`] : []
  })
  return parts.length ? `Latest p99: ${parts.join('; ')}.` : 'Nobody waited for a token.'
}

/** queue tells how many wait for what. */
export function queue(h: History): string {
  const now = h.queue.map((q) => ({ code: q.code, n: last(q.count, 1) ?? 0 })).filter((q) => q.n > 0)
  const most = Math.max(0, ...h.queue.map((q) => extent(q.count)?.max ?? 0))
  if (now.length === 0) return most === 0 ? 'Nothing waited.' : 'Nothing waits now.'
  return `Now: ${now.map((q) => `${q.n} ${q.code}`).join(', ')}.`
}
