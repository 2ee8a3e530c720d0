// Keys whose value is a list. Go writes a list that was never made as null. Keys that are a number or null elsewhere
// (rate_fraction, busy_fraction) are not among them.
const lists = new Set([
  'on',
  'beside',
  'command',
  'residents',
  'foreign',
  'degraded',
  'refusals',
  'ahead',
  'history',
  'lanes',
  'jobs',
  'gpus',
  'queue',
  'token_wait',
  'predicted_fraction',
  'reserved_bytes',
  'in_use_bytes',
  'count',
  'p99_ms',
])

/** parse reads JSON of the daemon, with empty lists for null ones. */
export function parse<T>(text: string): T {
  return JSON.parse(text, (key, value) => (value === null && lists.has(key) ? [] : value)) as T
}
