// Questions to the daemon. All of them go to where the page came from.

import { parse } from './lists'
import type { Error as Refusal, Event, Explanation, GPU, History, Job } from './types'

/** Refused is an answer that is no success, with what the daemon said of it. Status 0: there was no answer. */
export class Refused extends Error {
  readonly status: number
  readonly fix: string | undefined

  constructor(status: number, refusal: Partial<Refusal>) {
    super(refusal.message ?? (status === 0 ? 'no weft daemon answers' : `the daemon answers ${status}`))
    this.status = status
    this.fix = refusal.fix
  }
}

/** ask sends a request and gives the answer once its head is there; it throws Refused. */
export async function ask(path: string, init: RequestInit = {}): Promise<Response> {
  let answer: Response
  try {
    answer = await fetch(path, { cache: 'no-store', credentials: 'same-origin', ...init })
  } catch (cause) {
    if (init.signal?.aborted) throw cause
    throw new Refused(0, {})
  }
  if (answer.ok) return answer
  throw new Refused(answer.status, refusal(await answer.text().catch(() => '')))
}

function refusal(body: string): Partial<Refusal> {
  try {
    return (JSON.parse(body) as { error?: Partial<Refusal> }).error ?? {}
  } catch {
    return {}
  }
}

async function json<T>(path: string, init?: RequestInit): Promise<T> {
  return parse<T>(await (await ask(path, init)).text())
}

const post: RequestInit = { method: 'POST', headers: { 'Content-Type': 'application/json' } }

export const history = (minutes: number, signal: AbortSignal): Promise<History> => json(`/v1/history?minutes=${minutes}`, { signal })

export const allJobs = async (signal: AbortSignal): Promise<Job[]> => (await json<{ jobs: Job[] }>('/v1/jobs?all=1', { signal })).jobs

export const explain = (id: number, signal: AbortSignal): Promise<Explanation> => json(`/v1/jobs/${id}/explain`, { signal })

export const stop = (id: number): Promise<Job> => json(`/v1/jobs/${id}/stop`, post)

export const drain = (gpu: number, on: boolean): Promise<GPU> => json(`/v1/gpus/${gpu}/drain${on ? '' : '?off=1'}`, post)

/** events are those after a number, oldest first. */
export async function events(after: number, since: string, signal: AbortSignal): Promise<Event[]> {
  const text = await (await ask(`/v1/events?after=${after}&since=${since}`, { signal })).text()
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => parse<Event>(line))
}
