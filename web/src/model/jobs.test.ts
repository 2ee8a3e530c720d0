import { describe, expect, it } from 'vitest'
import type { Event, GPU, History, Job, Status } from '../api/types'
import { alarming, news, seen } from './alarms'
import { below, laneName, matches, note, order, reasonText, sorted, urgent, verdict } from './jobs'
import { codes, doc } from './reasons'
import * as summary from './summary'

const plain = (text: string): string => text.replaceAll('\u00a0', ' ')
const now = Date.parse('2026-11-30T14:00:00Z')
const job = (id: number, over: Partial<Job> = {}): Job => ({
  id, name: `j${id}`, user: 'ana', uid: 1, state: 'running', class: 'burstable', priority: 10, floor: 0.85, gpus: 1, on: [0], beside: [], command: [],
  reserved_bytes: 0, peak_bytes: 0, cooperates: false, migratable: false, rate_fraction: 0.93, predicted: null, below_floor_s: 0, windows: 1, busy_fraction: null,
  reason: null, operation: null, submitted_at: '2026-11-30T13:48:00Z', started_at: null, ended_at: null, run_s: 60, attempt: 1, exit: null, token_wait_ms: null, ...over,
})
const waits = (id: number, code = 'MemoryOverflow'): Job => job(id, { state: 'waiting', on: [], rate_fraction: null, reason: { code, text: '', gpu: 1, got: 0, limit: 0 } })

describe('jobs', () => {
  it('are below their floor only when that was observed', () => {
    expect([job(1), job(1, { rate_fraction: 0.84 }), job(1, { rate_fraction: null }), job(1, { rate_fraction: 0.1, state: 'stopping' }), job(1, { rate_fraction: 0.85 })].map(below)).toEqual([false, true, false, false, false])
  })

  it('come in the order asked for, what is unknown last either way', () => {
    const list = [job(3, { rate_fraction: null }), job(1, { rate_fraction: 0.9 }), job(2, { rate_fraction: 0.8 }), job(4, { rate_fraction: 0.8 })]
    const ids = (by: string): number[] => sorted(list, order(by), now).map((j) => j.id)
    expect([ids('rate'), ids('-rate'), ids(''), ids('-id'), ids('nonsense')]).toEqual([[2, 4, 1, 3], [1, 2, 4, 3], [1, 2, 3, 4], [4, 3, 2, 1], [1, 2, 3, 4]])
    expect(order('-time')).toEqual({ by: 'time', down: true })
    expect(list.map((j) => j.id)).toEqual([3, 1, 2, 4])
  })

  it('show first what wants a look', () => {
    expect(urgent([job(1), waits(2), job(3, { rate_fraction: 0.5 }), job(4, { rate_fraction: 0.86 }), waits(5), job(6, { rate_fraction: null }), job(7, { rate_fraction: null })]).map((j) => j.id)).toEqual([3, 2, 5, 4, 1, 6, 7])
  })

  it('are found by every word', () => {
    const j = waits(47, 'FloorResident')
    expect(['47', 'j47', 'ana waiting', 'floorres', '', '  '].every((q) => matches(j, q))).toBe(true)
    expect(matches(j, 'ana running')).toBe(false)
    expect(matches(job(1, { on: [2, 3] }), 'gpu3')).toBe(true)
  })

  it('say in a sentence how they are', () => {
    expect(plain(verdict(job(43, { name: 'bert-ft', on: [1], beside: [44] }), now))).toBe('Job 43 bert-ft (ana) on gpu1 beside 44: 93 %, floor 85 %.')
    expect(plain(verdict(job(43, { rate_fraction: 0.5 }), now))).toContain('BELOW')
    expect(verdict(waits(47), now)).toBe('Job 47 j47 (ana) waits 12m: MemoryOverflow gpu1.')
    expect(verdict(job(9, { state: 'done', outcome: 'failed', exit: 137, on: [] }), now)).toBe('Job 9 j9 (ana) ended: failed, exit 137 after 1m00s.')
    expect([note(job(1)), note(job(1, { state: 'done', outcome: 'succeeded', exit: 0 })), reasonText(job(1))]).toEqual(['', 'succeeded', ''])
  })

  it('have bars with names', () => {
    expect(laneName({ gpu: 1, job: 46, name: 'probe', class: 'besteffort', from_s: 1750, to_s: 549, moved: true, below: true })).toBe('job 46 probe, besteffort, on gpu1, from 29m ago, to 9m09s ago, below its floor, then moved')
  })
})

describe('reasons', () => {
  it('are all explained, and an unknown one says so', () => {
    for (const code of codes) expect(doc(code).act.length).toBeGreaterThan(10)
    expect(doc('Brandnew').act).toContain('weft explain')
    expect(doc('toString').act).toContain('weft explain')
  })
})

describe('alarms', () => {
  const status = (below_floor: number, degraded: string[] = []): Status => ({ below_floor, degraded }) as unknown as Status
  const gpus = (health: string): GPU[] => [{ gpu: 2, health } as GPU]

  it('are told when they begin, and once', () => {
    const calm = seen(status(0), gpus('ok'))
    const bad = seen(status(2, ['gpu2 XID 79']), gpus('unhealthy'))
    expect(news(null, bad)).toEqual([])
    expect(news(calm, bad).map(plain)).toEqual(['2 jobs below the floor', 'gpu2 is unhealthy', 'gpu2 XID 79'])
    expect(news(bad, bad)).toEqual([])
    expect(news(bad, calm)).toEqual(['All floors are held again'])
  })

  it('are the events that are bad news', () => {
    expect(['below_floor', 'unhealthy', 'stuck', 'placed', 'ended'].map((type) => alarming({ type } as Event))).toEqual([true, true, true, false, false])
  })
})

describe('summaries', () => {
  const history: History = {
    schema: 1, until: '2026-11-30T14:00:00Z', step_s: 5, jobs: [],
    lanes: [{ gpu: 0, job: 1, name: 'a', class: 'burstable', from_s: 9, to_s: null, moved: false, below: false }, { gpu: 1, job: 2, name: 'b', class: 'burstable', from_s: 9, to_s: 5, moved: true, below: false }],
    gpus: [{ gpu: 1, usable_bytes: 24159191040, reserved_bytes: [2 ** 33], in_use_bytes: [2 ** 34], busy_fraction: [1] }],
    queue: [{ code: 'Priority', count: [0, 2] }, { code: 'Quota', count: [1, 0] }], token_wait: [{ class: 'guaranteed', p99_ms: [0.3, 0.1, null] }, { class: 'burstable', p99_ms: [null] }],
  }
  it('say what a chart shows', () => {
    expect(plain(summary.lanes(history, [0, 1]))).toBe('1 of 2 GPUs in use by 1 job; 2 stays shown, 1 moved.')
    expect(plain(summary.memories(history.gpus))).toBe('Fullest: gpu1, 16.0 of 22.5 GiB in use.')
    expect(plain(summary.gpuMemory(history.gpus[0]!))).toBe('Reserved 8.0 GiB, beyond it 8.0 GiB; most in use 16.0 GiB of 22.5 GiB.')
    expect(plain(summary.queue(history))).toBe('Now: 2 Priority.')
    expect(plain(summary.waits(history))).toBe('Latest p99: guaranteed 0.1 ms, at most 0.3 ms.')
    expect(plain(summary.rates([job(1), job(2, { rate_fraction: 0.8 })]))).toBe('1 of 2 jobs below the floor; nearest: 2 j2, 80 %, floor 85 %.')
  })
  it('say when there is nothing', () => {
    const none = { ...history, lanes: [], gpus: [], queue: [], token_wait: [] }
    expect([summary.memories([]), summary.queue(none), summary.waits(none), summary.rates([]), summary.rate(job(1), [])]).toEqual(['No memory in use.', 'Nothing waited.', 'Nobody waited for a token.', 'No rate observed yet.', 'No rate observed yet.'])
  })
})
