// The system's browser, driven by Playwright.

import { existsSync } from 'node:fs'
import { chromium } from 'playwright-core'

const names = ['chromium', 'chromium-browser', 'google-chrome', 'chrome']

/** found is the path of the browser, or null. */
export function found() {
  for (const dir of (process.env.PATH ?? '').split(':')) for (const name of names) if (existsSync(`${dir}/${name}`)) return `${dir}/${name}`
  return null
}

/** browser starts it. */
export function browser() {
  return chromium.launch({ executablePath: found(), args: ['--no-sandbox', '--disable-dev-shm-usage'] })
}

/** open is a page at an address; faults fills with what goes wrong on it. */
export async function open(chromium, url, options = {}) {
  const context = await chromium.newContext({ viewport: { width: 1280, height: 800 }, ...options })
  const page = await context.newPage()
  const faults = []
  page.on('pageerror', (e) => faults.push(`error: ${e.message}`))
  page.on('console', (m) => ['error', 'warning'].includes(m.type()) && faults.push(`console: ${m.text()}`))
  page.on('request', (r) => !r.url().startsWith(new URL(url).origin) && faults.push(`elsewhere: ${r.url()}`))
  await page.goto(url)
  return { context, page, faults }
}
