// A box that is made up, as a daemon would tell of it: for tests of the page that want a state at will.

const GiB = 2 ** 30
const at = (secondsAgo) => new Date(Date.now() - secondsAgo * 1000).toISOString()

/** job fills what a job of a test does not say. */
export function job(id, over = {}) {
  const state = over.state ?? 'running'
  return {
    id, name: `job-${id}`, user: 'ana', uid: 1000, state, class: 'burstable', priority: 10, floor: 0.85, gpus: 1, on: [], beside: [],
    command: ['python', 'train.py', '--lr', '1e-3'], reserved_bytes: 4 * GiB, peak_bytes: 8 * GiB, cooperates: false, migratable: false,
    rate_fraction: state === 'running' ? 0.93 : null, predicted: state === 'running' ? { rate_fraction: (over.rate_fraction ?? 0.93) - 0.02, low_fraction: (over.rate_fraction ?? 0.93) - 0.07, high_fraction: Math.min(1, (over.rate_fraction ?? 0.93) + 0.02), basis: 'catalogue' } : null,
    below_floor_s: 0, windows: state === 'running' ? 156 : 0, busy_fraction: 0.7, reason: null, operation: null,
    submitted_at: at(4000), started_at: state === 'waiting' ? null : at(3120), ended_at: null, run_s: state === 'waiting' ? 0 : 3120, attempt: 1, exit: null, ...over,
  }
}

export function gpu(index, over = {}) {
  return {
    gpu: index, uuid: `GPU-00000000-0000-0000-0000-${String(index).padStart(12, '0')}`, model: 'NVIDIA A10', health: 'ok', xid: null, busy_fraction: 0.94, temperature_celsius: 61,
    usable_bytes: 22.5 * GiB, reserved_bytes: 11.5 * GiB, in_use_bytes: 19.8 * GiB, residents: [], stall_s: 2.1, overruns: 0, foreign: [], ...over,
  }
}

const reason = (code, text, over = {}) => ({ code, text: `${code} ${text}`.trim(), got: 0, limit: 0, ...over })

/** mockup is the box of the design: four GPUs, six jobs that run, two that wait. */
export function mockup() {
  const jobs = [
    job(41, { name: 'resnet50', class: 'guaranteed', floor: 0.95, rate_fraction: 0.98, on: [0], beside: [42], run_s: 8040, started_at: at(8040) }),
    job(42, { name: 'lm-small', user: 'ben', class: 'besteffort', floor: 0.2, rate_fraction: 0.41, on: [0], beside: [41], run_s: 6600, started_at: at(1500) }),
    job(43, { name: 'bert-ft', floor: 0.85, below_floor_s: 90, rate_fraction: 0.93, on: [1], beside: [44] }),
    job(44, { name: 'gnn-tune', user: 'carl', floor: 0.8, rate_fraction: 0.89, on: [1], beside: [43], run_s: 2820, started_at: at(1100) }),
    job(45, { name: 'vit-l', user: 'dana', floor: 0.9, rate_fraction: 0.97, on: [2, 3], gpus: 2, beside: [46], run_s: 11100, started_at: at(11100) }),
    job(46, { name: 'probe', user: 'ben', floor: 0.8, rate_fraction: 0.84, on: [3], beside: [45], run_s: 1860, migratable: true, operation: { verb: 'Moved', time: at(540), from: [1], to: [3], text: '43 was below its floor.\n43 beside 44,46: observed 78 %, predicted 88 %, floor 85 %, 3 windows (60 s).\n46 was cheapest: 1.2 GiB, pause 9 s. Now 43 93 %, 46 84 %. Pair banned to 15:23.' } }),
    job(47, { name: 'vit-sweep', user: 'carl', state: 'waiting', floor: 0.9, reserved_bytes: 8 * GiB, peak_bytes: 12 * GiB, submitted_at: at(720), reason: reason('MemoryOverflow', 'gpu1', { gpu: 1, got: 0.31, limit: 0.05 }) }),
    job(48, { name: 'llm-eval', user: 'dana', state: 'waiting', floor: 0.9, submitted_at: at(180), reason: reason('Priority', 'after 47', { after: 47 }) }),
  ]
  const gpus = [
    gpu(0, { busy_fraction: 0.97, reserved_bytes: 12.5 * GiB, in_use_bytes: 16.1 * GiB, residents: [41, 42], token: 41 }),
    gpu(1, { residents: [43, 44], token: 44 }),
    gpu(2, { busy_fraction: 0.71, reserved_bytes: 14 * GiB, in_use_bytes: 16.9 * GiB, residents: [45], token: 45 }),
    gpu(3, { busy_fraction: 0.83, reserved_bytes: 16 * GiB, in_use_bytes: 18.4 * GiB, residents: [45, 46], token: 46 }),
  ]
  const events = [
    { seq: 1, time: at(3300), type: 'submitted', job: 43, name: 'bert-ft', text: 'by ana' },
    { seq: 2, time: at(3120), type: 'placed', job: 43, name: 'bert-ft', gpu: 1, text: 'beside nobody, predicted 100 %' },
    { seq: 3, time: at(1100), type: 'placed', job: 44, name: 'gnn-tune', gpu: 1, text: 'beside 43,46, predicted 87 % (82 to 91), floor 80 %' },
    { seq: 4, time: at(720), type: 'submitted', job: 47, name: 'vit-sweep', text: 'by carl' },
    { seq: 5, time: at(600), type: 'below_floor', job: 43, name: 'bert-ft', gpu: 1, text: '78 % < floor 85 % for 60 s beside 44,46' },
    { seq: 6, time: at(549), type: 'moved', job: 46, name: 'probe', gpu: 3, text: 'from gpu1: 43 was below its floor' },
    { seq: 7, time: at(548), type: 'banned', job: 46, name: 'probe', text: '43 and 46 are kept apart for 1h00m' },
    { seq: 8, time: at(540), type: 'resumed', job: 46, name: 'probe', gpu: 3, text: 'paused 9 s' },
    { seq: 9, time: at(180), type: 'submitted', job: 48, name: 'llm-eval', text: 'by dana' },
  ]
  const lanes = [
    [0, 41, 1800, null], [0, 42, 1500, null], [1, 43, 1800, null], [1, 46, 1750, 549, { moved: true, below: false }], [1, 44, 1100, null], [1, 40, 1790, 1300, { name: 'old-eval' }],
    [2, 45, 1800, null], [3, 45, 1800, null], [3, 46, 540, null], [3, 39, 1650, 900, { name: 'sweep-a', below: true }],
  ]
  return { host: 'box1', jobs, gpus, events, lanes: lanes.map((l) => lane(jobs, ...l)), past: [job(40, { name: 'old-eval', state: 'done', outcome: 'succeeded', exit: 0, ended_at: at(1300) }), job(39, { name: 'sweep-a', state: 'done', outcome: 'failed', exit: 137, ended_at: at(900), class: 'besteffort' })] }
}

function lane(jobs, gpuIndex, id, from, to, over = {}) {
  const j = jobs.find((j) => j.id === id)
  return { gpu: gpuIndex, job: id, name: j?.name ?? `job-${id}`, class: j?.class ?? 'besteffort', from_s: from, to_s: to, moved: false, below: false, ...over }
}

/** crowd is a full box: 16 GPUs, 64 jobs that run on them, 200 that wait. */
export function crowd() {
  const classes = ['guaranteed', 'burstable', 'burstable', 'besteffort']
  const jobs = Array.from({ length: 64 }, (_, i) => {
    const on = i % 16
    return job(100 + i, { name: `train-${i}`, class: classes[i >> 4], on: [on], beside: [0, 1, 2, 3].map((k) => 100 + on + 16 * k).filter((id) => id !== 100 + i), rate_fraction: 0.8 + (i % 20) / 100, floor: 0.84 })
  })
  const codes = ['MemoryOverflow', 'FloorResident', 'Priority', 'MaxResidents', 'Quota', 'Gang']
  for (let i = 0; i < 200; i++) jobs.push(job(200 + i, { name: `sweep-${i}`, state: 'waiting', reason: reason(codes[i % 6], `gpu${i % 16}`) }))
  const gpus = Array.from({ length: 16 }, (_, i) => gpu(i, { residents: [0, 1, 2, 3].map((k) => 100 + i + 16 * k) }))
  const lanes = jobs.slice(0, 64).map((j, i) => lane(jobs, i % 16, j.id, 1700 - i * 20, null, { below: i % 20 < 4 }))
  return { host: 'dgx-17', jobs, gpus, lanes, past: [], events: Array.from({ length: 300 }, (_, i) => ({ seq: i + 1, time: at(3000 - i * 10), type: i % 9 ? 'placed' : 'below_floor', job: 100 + (i % 64), name: `train-${i % 64}`, gpu: i % 16, text: 'beside others' })) }
}

/** idle is a box that nobody uses yet. */
export function idle() {
  return { host: 'box2', jobs: [], gpus: [0, 1, 2, 3].map((i) => gpu(i, { busy_fraction: 0, reserved_bytes: 0, in_use_bytes: 0 })), events: [], lanes: [], past: [] }
}

/** status counts. */
export function status(box) {
  const running = box.jobs.filter((j) => j.state !== 'waiting')
  return {
    schema: 1, host: box.host, version: 'test', pid: 812, state_dir: '/var/lib/weft', emulated: box.emulated ?? false, since: at(90000), gpus: box.gpus.length,
    gpus_in_use: box.gpus.filter((g) => g.residents.length).length, workers: running.reduce((n, j) => n + j.on.length, 0), running: running.length,
    waiting: box.jobs.length - running.length, below_floor: running.filter((j) => j.rate_fraction !== null && j.rate_fraction < j.floor).length, degraded: box.degraded ?? [],
  }
}

/** history makes up a past that ends with what is now. */
export function history(box, minutes) {
  const step = 5
  const n = (minutes * 60) / step
  const wave = (i, k) => Math.sin(i / (7 + (k % 5))) * 0.012 + Math.sin(i / 31 + k) * 0.02
  const series = (k, from, f) => Array.from({ length: n }, (_, i) => ((n - 1 - i) * step > from ? null : f(i, wave(i, k), (n - 1 - i) * step)))
  const running = box.jobs.filter((j) => j.state === 'running')
  return {
    schema: 1, until: new Date().toISOString(), step_s: step, lanes: box.lanes.filter((l) => (l.to_s ?? 0) < minutes * 60),
    jobs: running.map((j) => {
      const from = box.lanes.find((l) => l.job === j.id && l.to_s === null)?.from_s ?? 1800
      return {
        job: j.id, name: j.name, floor: j.floor,
        rate_fraction: series(j.id, from - 20, (i, w, ago) => (ago > 900 && ago < 960 ? null : Math.min(1, j.rate_fraction + w - (j.id === 43 && ago > 550 && ago < 640 ? 0.14 : 0)))),
        predicted_fraction: series(j.id, from, () => j.predicted.rate_fraction),
      }
    }),
    gpus: box.gpus.map((g) => ({
      gpu: g.gpu, usable_bytes: g.usable_bytes, reserved_bytes: series(g.gpu, 1750, (i, w, ago) => (ago > 1100 ? g.reserved_bytes * 0.7 : g.reserved_bytes)),
      in_use_bytes: series(g.gpu, 1750, (i, w) => Math.max(0, g.in_use_bytes * (1 + 4 * w))), busy_fraction: series(g.gpu, 1750, (i, w) => Math.min(1, Math.max(0, g.busy_fraction + 2 * w))),
    })),
    queue: [...new Set(box.jobs.filter((j) => j.state === 'waiting').map((j) => j.reason.code))].map((code, k) => ({ code, count: series(k, 700 - 200 * k, () => box.jobs.filter((j) => j.reason?.code === code).length) })),
    token_wait: running.length ? [{ class: 'guaranteed', p99_ms: series(1, 1700, (i, w) => 0.14 + w) }, { class: 'burstable', p99_ms: series(2, 1700, (i, w) => 6 + 60 * w) }, { class: 'besteffort', p99_ms: series(3, 1400, (i, w) => 41 + 300 * w) }] : [],
  }
}

/** explanation says why, in the words of the design. */
export function explanation(box, id) {
  const j = [...box.jobs, ...box.past].find((j) => j.id === id)
  if (!j) return null
  const waits = j.state === 'waiting'
  const refusals = [
    { gpu: 1, beside: [43, 44], reason: reason('MemoryOverflow', '', { text: 'P(over 22.5 GiB) 0.31, allowed 0.05' }), nearest: true },
    { gpu: 2, beside: [45], reason: reason('FloorResident', '', { text: '45 keeps at least 82 %, floor 90 %' }), nearest: false },
    { gpu: 3, beside: [45, 46], reason: reason('MemoryReserved', '', { text: '16.0 + 8.0 = 24.0 GiB, usable 22.5' }), nearest: false },
    { gpu: 0, beside: [41, 42], reason: reason('ClassConflict', '', { text: 'guaranteed 41 has its one besteffort' }), nearest: false },
  ]
  return {
    job: j, refusals: waits ? refusals : [], opens: waits ? 'Starts when 44 ends (about 11m), or now with a peak <= 9.4 GiB (what-if, gpu1)' : '', ahead: id === 48 ? [47] : null, promised_at: null,
    residents: j.beside.map((b) => ({ id: b, name: box.jobs.find((j) => j.id === b)?.name ?? '', slows_by_fraction: 0.05, slowed_by_fraction: 0.07, observed: 48, predicted_basis: 'catalogue' })),
    lost: j.state === 'running' ? { token_wait_fraction: 0.05, stall_fraction: 0.01, contention_fraction: 0.01 } : null, floor_held_s: j.run_s - 60, history: box.events.filter((e) => e.job === id),
  }
}
