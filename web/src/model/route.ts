// The address of the page: everything that a reader chose is in it, behind the #. The part before it never changes, so
// that the daemon has one page to serve.

export const pages = ['now', 'jobs', 'gpus', 'events'] as const
export type Page = (typeof pages)[number]

/** Route is a page, or one job or GPU of it, with what was chosen there. */
export interface Route {
  page: Page
  id: number | null
  query: Readonly<Record<string, string>>
}

/** read understands a hash. What it does not know is the page Now. */
export function read(hash: string): Route {
  const [path = '', query = ''] = hash.replace(/^#?\/?/, '').split('?', 2)
  const [first = '', second = ''] = path.split('/')
  const page = pages.find((p) => p === first)
  const chosen = Object.fromEntries(new URLSearchParams(query))
  if (!page) return { page: 'now', id: null, query: chosen }
  const id = /^\d{1,15}$/.test(second) && (page === 'jobs' || page === 'gpus') ? Number(second) : null
  return { page, id, query: chosen }
}

/** write is the hash of a route: read(write(r)) is r. */
export function write({ page, id, query }: Route): string {
  const search = new URLSearchParams(Object.entries(query).sort(([a], [b]) => (a < b ? -1 : 1))).toString()
  return `#/${page}${id === null ? '' : `/${id}`}${search ? `?${search}` : ''}`
}

/** change is a route with some choices changed; null and the empty string take one back. */
export function change(route: Route, choices: Record<string, string | number | null>): Route {
  const query: Record<string, string> = { ...route.query }
  for (const [key, value] of Object.entries(choices)) {
    if (value === null || value === '') delete query[key]
    else query[key] = String(value)
  }
  return { ...route, query }
}

export const jobLink = (id: number): string => `#/jobs/${id}`
export const gpuLink = (index: number): string => `#/gpus/${index}`

/** Span is a part of time, in seconds since 1970. */
export interface Span {
  from: number
  to: number
}

/** zoomed is the part of time that a route asks for: from and to in whole seconds, in order; null shows all. */
export function zoomed(route: Route): Span | null {
  const from = Number(route.query.from)
  const to = Number(route.query.to)
  return Number.isFinite(from) && Number.isFinite(to) && from > 0 && to > from ? { from, to } : null
}

/** spans are how far back the charts may go, in minutes. */
export const spans: readonly number[] = [5, 10, 30]

/** minutes is how far back the charts go as chosen, and null where nothing was: then as far as something is known. */
export function minutes(route: Route): number | null {
  const n = Number(route.query.minutes)
  return spans.includes(n) ? n : null
}
