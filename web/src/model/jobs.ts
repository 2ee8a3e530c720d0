// Jobs in order and by words.

import type { Job, Lane } from '../api/types'
import { clock, duration, listed, percent } from './format'

/** below says whether a job is observed below its floor now. */
export function below(job: Job): boolean {
  return job.state === 'running' && job.rate_fraction !== null && job.rate_fraction < job.floor
}

/** live says whether a job has GPUs. */
export function live(job: Job): boolean {
  return job.state === 'starting' || job.state === 'running' || job.state === 'stopping'
}

/** margin is how far a job is above its floor; what is unknown is far. */
export function margin(job: Job): number {
  return job.rate_fraction === null ? Infinity : job.rate_fraction - job.floor
}

/** time is how long a job runs, waits or ran, in seconds. */
export function time(job: Job, now: number): number {
  if (job.state === 'waiting') return (now - new Date(job.submitted_at).getTime()) / 1000
  return job.run_s
}

/** note is the last column of a list of jobs: why it waits, or what happened to it last. */
export function note(job: Job): string {
  if (job.state === 'waiting') return reasonText(job)
  if (job.state === 'done') return ended(job)
  if (job.operation && job.operation.verb !== 'Placed') return `${job.operation.verb} ${clock(job.operation.time).replace(/:\d\d$/, '')}`
  return ''
}

/** reasonText is why a job waits, in a few words. */
export function reasonText(job: Job): string {
  const r = job.reason
  if (!r) return ''
  if (r.text) return r.text
  return r.code + (r.gpu !== undefined ? ` gpu${r.gpu}` : '') + (r.after ? ` after ${r.after}` : '')
}

/** reasonRest is reasonText without the code that it begins with. */
export function reasonRest(job: Job): string {
  const text = reasonText(job)
  return job.reason && text.startsWith(job.reason.code) ? text.slice(job.reason.code.length) : ` ${text}`
}

/** ended is how a job that is done ended. */
export function ended(job: Job): string {
  return `${job.outcome ?? 'done'}${job.exit !== null && job.exit !== 0 ? `, exit ${job.exit}` : ''}`
}

/** verdict is a job in one sentence, as weft explain begins. */
export function verdict(job: Job, now: number): string {
  const who = `Job ${job.id} ${job.name} (${job.user})`
  if (job.state === 'waiting') return `${who} waits ${duration(time(job, now))}${job.reason ? `: ${reasonText(job)}` : ''}.`
  if (job.state === 'done') return `${who} ended: ${ended(job)} after ${duration(job.run_s)}.`
  const where = `on ${job.on.map((g) => `gpu${g}`).join(', ') || '-'}${job.beside.length ? ` beside ${listed(job.beside)}` : ''}`
  if (job.rate_fraction === null) return `${who} ${where}: no rate observed yet, floor ${percent(job.floor)}.`
  return `${who} ${where}: ${percent(job.rate_fraction)}, floor ${percent(job.floor)}${below(job) ? ', BELOW' : ''}.`
}

export const columns = ['id', 'name', 'user', 'state', 'gpu', 'rate', 'floor', 'time'] as const
export type Column = (typeof columns)[number]

/** Order is by what a list is sorted. */
export interface Order {
  by: Column
  down: boolean
}

/** order reads "rate" or "-rate" (greatest first); what it does not know is by number. */
export function order(text: string | undefined): Order {
  const by = columns.find((c) => c === text?.replace(/^-/, ''))
  return { by: by ?? 'id', down: by !== undefined && text?.startsWith('-') === true }
}

const states = ['running', 'starting', 'stopping', 'waiting', 'done']

function value(job: Job, by: Column, now: number): number | string {
  switch (by) {
    case 'id':
      return job.id
    case 'name':
      return job.name
    case 'user':
      return job.user
    case 'state':
      return states.indexOf(job.state)
    case 'gpu':
      return job.on[0] ?? Infinity
    case 'rate':
      return job.rate_fraction ?? Infinity
    case 'floor':
      return job.floor
    case 'time':
      return time(job, now)
  }
}

/** sorted is a list in order; ties are by number, and what is unknown comes last either way. */
export function sorted(jobs: readonly Job[], { by, down }: Order, now: number): Job[] {
  const keyed = jobs.map((job) => ({ job, key: value(job, by, now) }))
  keyed.sort((a, b) => {
    if (a.key === b.key) return a.job.id - b.job.id
    if (a.key === Infinity || b.key === Infinity) return a.key === Infinity ? 1 : -1
    return (a.key < b.key ? -1 : 1) * (down ? -1 : 1)
  })
  return keyed.map(({ job }) => job)
}

/** urgent puts what an operator looks at first: below its floor, waiting, then the nearest to its floor. */
export function urgent(jobs: readonly Job[]): Job[] {
  const rank = (j: Job): number => (below(j) ? 0 : j.state === 'waiting' ? 1 : 2)
  return [...jobs].sort((a, b) => rank(a) - rank(b) || (rank(a) === 1 ? 0 : margin(a) - margin(b) || 0) || a.id - b.id)
}

/** matches says whether every word of a search is found in a job: its number, name, user, state, class, reason or gpuN. */
export function matches(job: Job, search: string): boolean {
  const text = [job.id, job.name, job.user, job.state, job.outcome, job.class, job.profile, job.reason?.code, ...job.on.map((g) => `gpu${g}`)]
    .join(' ')
    .toLowerCase()
  return search
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word))
}

/** laneName is what is read out of a bar. */
export function laneName(lane: Lane): string {
  const parts = [`job ${lane.job} ${lane.name}`, lane.class, `on gpu${lane.gpu}`, `from ${duration(lane.from_s)} ago`]
  parts.push(lane.to_s === null ? 'until now' : `to ${duration(lane.to_s)} ago`)
  if (lane.below) parts.push('below its floor')
  if (lane.moved) parts.push('then moved')
  return parts.join(', ')
}
