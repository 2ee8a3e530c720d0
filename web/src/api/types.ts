// What the daemon tells, as package internal/box says it. A test beside that package compares the two, key by key.
// Units are in the names: _s seconds, _ms milliseconds, _bytes bytes, _fraction a share of 1, _at RFC 3339 in UTC.

export type Class = 'guaranteed' | 'burstable' | 'besteffort'
export type State = 'waiting' | 'starting' | 'running' | 'stopping' | 'done'

export interface Job {
  id: number
  array?: number
  index?: number
  name: string
  user: string
  uid: number
  state: State
  outcome?: string
  class: Class
  priority: number
  floor: number
  gpus: number
  on: number[]
  beside: number[]
  command: string[]
  profile?: string
  reserved_bytes: number
  peak_bytes: number
  cooperates: boolean
  migratable: boolean
  rate_fraction: number | null
  predicted: Prediction | null
  below_floor_s: number
  windows: number
  busy_fraction: number | null
  token_wait_ms: number | null
  reason: Reason | null
  operation: Operation | null
  submitted_at: string
  started_at: string | null
  ended_at: string | null
  run_s: number
  attempt: number
  pid?: number
  exit: number | null
  fault?: string
  max_time_s?: number
  after?: number[]
}

export interface Prediction {
  rate_fraction: number
  low_fraction: number
  high_fraction: number
  basis: string
}

export interface Reason {
  code: string
  text: string
  gpu?: number
  got: number
  limit: number
  after?: number
}

export interface Operation {
  verb: string
  time: string
  from?: number[]
  to?: number[]
  text: string
}

export interface GPU {
  gpu: number
  uuid: string
  model: string
  health: string
  fault?: string
  xid: number | null
  busy_fraction: number | null
  temperature_celsius: number | null
  usable_bytes: number
  reserved_bytes: number
  in_use_bytes: number
  residents: number[]
  token?: number
  stall_s: number
  overruns: number
  foreign: Foreign[]
}

export interface Foreign {
  pid: number
  user: string
  name: string
  bytes: number
}

export interface Status {
  schema: number
  host: string
  version: string
  pid: number
  state_dir: string
  page?: string
  emulated: boolean
  since: string
  gpus: number
  gpus_in_use: number
  workers: number
  running: number
  waiting: number
  below_floor: number
  degraded: string[]
}

export interface Event {
  seq: number
  time: string
  type: string
  job?: number
  name?: string
  gpu?: number
  text: string
}

export interface Explanation {
  job: Job
  refusals: Refusal[]
  opens: string
  ahead: number[]
  promised_at: string | null
  residents: Resident[]
  lost: Loss | null
  floor_held_s: number
  history: Event[]
}

export interface Refusal {
  gpu: number
  beside: number[]
  reason: Reason
  nearest: boolean
}

export interface Resident {
  id: number
  name: string
  slows_by_fraction: number
  slowed_by_fraction: number
  observed: number
  predicted_basis: string
}

export interface Loss {
  token_wait_fraction: number
  stall_fraction: number
  contention_fraction: number
}

export interface History {
  schema: number
  until: string
  step_s: number
  lanes: Lane[]
  jobs: JobHistory[]
  gpus: GPUHistory[]
  queue: QueueCount[]
  token_wait: TokenWait[]
}

export interface Lane {
  gpu: number
  job: number
  name: string
  class: Class
  from_s: number
  to_s: number | null
  moved: boolean
  below: boolean
}

export interface JobHistory {
  job: number
  name: string
  floor: number
  rate_fraction: (number | null)[]
  predicted_fraction: (number | null)[]
}

export interface GPUHistory {
  gpu: number
  usable_bytes: number
  reserved_bytes: (number | null)[]
  in_use_bytes: (number | null)[]
  busy_fraction: (number | null)[]
}

export interface QueueCount {
  code: string
  count: (number | null)[]
}

export interface TokenWait {
  class: Class
  p99_ms: (number | null)[]
}

export interface Error {
  kind: string
  code: string
  message: string
  field?: string
  value?: string
  why?: string
  fix?: string
}
