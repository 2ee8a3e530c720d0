// Whether the page is narrower than what it calls a desktop.

const query = matchMedia('(max-width: 899px)')

class Narrow {
  yes = $state(query.matches)

  constructor() {
    query.addEventListener('change', () => (this.yes = query.matches))
  }
}

export const narrow = new Narrow()
