// Where the reader is: the address, as state.

import { change, read, write, type Route } from './model/route'

class Here {
  route = $state.raw<Route>(read(location.hash))

  /** start follows the address until the signal is given. */
  start(signal: AbortSignal): void {
    window.addEventListener('hashchange', () => this.follow(), { signal })
  }

  /** follow takes the address as it is now: behind a link the browser tells of it only later, when a key may have been pressed. */
  follow(): void {
    const next = read(location.hash)
    if (write(next) !== write(this.route)) this.route = next
  }

  /** link is the address with some choices changed. */
  link(choices: Record<string, string | number | null>): string {
    return write(change(this.route, choices))
  }

  /** go goes to an address at once. */
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
