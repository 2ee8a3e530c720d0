// What is read out without being asked: bad news, once.

import type { Event, GPU, Status } from '../api/types'
import { count } from './format'

const bad = new Set(['below_floor', 'checkpoint', 'trouble', 'unhealthy', 'escaped', 'overrun', 'over_limit', 'stuck'])

/** alarming says whether an event is bad news, as package box does. */
export function alarming(event: Event): boolean {
  return bad.has(event.type)
}

/** Seen is what the alarms of a state are told from. */
export interface Seen {
  below: number
  sick: string[]
  degraded: string[]
}

/** seen draws from a state what matters here. */
export function seen(status: Status, gpus: readonly GPU[]): Seen {
  return {
    below: status.below_floor,
    sick: gpus.filter((g) => g.health === 'unhealthy').map((g) => `gpu${g.gpu}`),
    degraded: status.degraded,
  }
}

/** news are the sentences to say between two states: nothing at first, and nothing when all is as it was. */
export function news(before: Seen | null, after: Seen): string[] {
  if (!before) return []
  const list: string[] = []
  if (after.below > before.below) list.push(`${count(after.below, 'job')} below the floor`)
  if (after.below === 0 && before.below > 0) list.push('All floors are held again')
  for (const gpu of after.sick) if (!before.sick.includes(gpu)) list.push(`${gpu} is unhealthy`)
  for (const line of after.degraded) if (!before.degraded.includes(line)) list.push(line)
  return list
}
