// Where the reader is: the address, as state.

import { change, read, write, type Route } from './model/route'

class Here {
  route = $state.raw<Route>(read(location.hash))

  /** start follows the address until the signal is given. */
  start(signal: AbortSignal): void {
    window.addEventListener('hashchange', () => (this.route = read(location.hash)), { signal })
  }

  /** link is the address with some choices changed. */
  link(choices: Record<string, string | number | null>): string {
    return write(change(this.route, choices))
  }

  /** go follows an address at once: the browser tells of it only later, when further keys may have been pressed. */
  go(address: string): void {
    location.hash = address
    this.route = read(address)
  }

  /** choose changes choices in place; with a mark in the browser's past when it is worth going back from. */
  choose(choices: Record<string, string | number | null>, mark = false): void {
    const next = change(this.route, choices)
    if (mark) location.hash = write(next)
    else history.replaceState(null, '', write(next))
    this.route = next
  }
}

export const here = new Here()
