// How figures are written: as every command of weft writes them.

const gap = '\u00a0' // between a figure and its unit: they are not parted at the end of a line

/** percent writes a share of 1 as "94 %", and what is unknown as "-". */
export function percent(fraction: number | null | undefined): string {
  return known(fraction) ? `${Math.round(fraction * 100)}${gap}%` : '-'
}

const units: [number, string, number][] = [
  [2 ** 40, 'TiB', 1],
  [2 ** 30, 'GiB', 1],
  [2 ** 20, 'MiB', 0],
  [2 ** 10, 'KiB', 0],
]

/** memory writes bytes in the largest binary unit of which there is at least one: "512 MiB", "22.5 GiB". */
export function memory(bytes: number | null | undefined): string {
  if (!known(bytes)) return '-'
  const [scale, unit, decimals] = units.find(([scale]) => bytes >= scale) ?? [1, 'B', 0]
  return `${(bytes / scale).toFixed(decimals)}${gap}${unit}`
}

/** gib writes bytes as a bare figure in GiB, for columns and axes that name the unit. */
export function gib(bytes: number | null | undefined): string {
  return known(bytes) ? (bytes / 2 ** 30).toFixed(1) : '-'
}

/** duration writes seconds by their two largest units at most: "38s", "3m05s", "52m", "2h14m", "3d04h". */
export function duration(seconds: number | null | undefined): string {
  if (!known(seconds)) return '-'
  const s = Math.max(0, Math.floor(seconds))
  if (s < 60) return `${s}s`
  if (s < 600) return `${Math.floor(s / 60)}m${two(s % 60)}s`
  if (s < 3600) return `${Math.floor(s / 60)}m`
  if (s < 86400) return `${Math.floor(s / 3600)}h${two(Math.floor(s / 60) % 60)}m`
  return `${Math.floor(s / 86400)}d${two(Math.floor(s / 3600) % 24)}h`
}

/** milliseconds writes "0.1 ms", "38 ms": one decimal below 20. */
export function milliseconds(ms: number | null | undefined): string {
  if (!known(ms)) return '-'
  return `${ms < 20 ? ms.toFixed(1) : grouped(Math.round(ms))}${gap}ms`
}

/** grouped writes a whole number with a comma each three digits: "37,589". */
export function grouped(n: number): string {
  return Math.round(n).toLocaleString('en-US')
}

/** count writes a number of things in words: "1 job", "2 jobs", "0 jobs". */
export function count(n: number, thing: string, things = `${thing}s`): string {
  return `${grouped(n)}${gap}${n === 1 ? thing : things}`
}

/** clock writes an instant as the time of day, "14:23:10", with the date before it when it is of another day than now. */
export function clock(at: string | number | Date, now: Date = new Date()): string {
  const t = new Date(at)
  if (Number.isNaN(t.getTime())) return '-'
  const time = `${two(t.getHours())}:${two(t.getMinutes())}:${two(t.getSeconds())}`
  if (t.toDateString() === now.toDateString()) return time
  return `${t.getFullYear()}-${two(t.getMonth() + 1)}-${two(t.getDate())} ${time}`
}

/** command writes the words of a command as a shell would read them. */
export function command(words: string[]): string {
  return words.map((w) => (/^[\w@%+=:,./-]+$/.test(w) ? w : `'${w.replaceAll("'", `'\\''`)}'`)).join(' ')
}

/** listed joins numbers as weft does: "0,1", and "-" for none. */
export function listed(numbers: readonly number[] | undefined): string {
  return numbers?.length ? numbers.join(',') : '-'
}

/** known says whether a figure is one. */
export function known(n: number | null | undefined): n is number {
  return n !== null && n !== undefined && Number.isFinite(n)
}

function two(n: number): string {
  return String(n).padStart(2, '0')
}
