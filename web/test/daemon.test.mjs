// The page before a real daemon on emulated GPUs: a job from its submission to its end, and a daemon that is killed.
// WEFT_BINARY names the program (bin/weft); skipped, loudly, where it or the browser is missing.

import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { browser, found, open } from './browser.mjs'

const weft = process.env.WEFT_BINARY ?? fileURLToPath(new URL('../../bin/weft', import.meta.url))
const train = join(dirname(weft), 'lib', 'weft-train')
const skip = !found() ? 'NO BROWSER: scripts/deps.sh installs one' : !existsSync(weft) || !existsSync(train) ? `NO ${weft}: make build` : false

/** Daemon is weft up with a state folder of its own. */
class Daemon {
  state = mkdtempSync(join(tmpdir(), 'weft-page-'))
  env = { ...process.env, WEFT_RUNTIME_DIR: join(this.state, 'run'), WEFT_STATE: this.state, WEFT_CONFIG: '/dev/null' }

  /** up starts it and gives the address that it prints. */
  async up(listen) {
    this.process = spawn(weft, ['up', '--emulate', '2', '--gpu-memory', '8GiB', '--listen', listen], { env: this.env, stdio: ['ignore', 'pipe', 'pipe'] })
    this.ended = new Promise((done) => this.process.once('exit', done))
    let said = ''
    return new Promise((done, fail) => {
      const hear = (piece) => {
        said += piece
        const url = /^page: (\S+)$/m.exec(said)?.[1]
        if (url) done(url)
      }
      this.process.stdout.on('data', hear)
      this.process.stderr.on('data', hear)
      void this.ended.then(() => fail(new Error(`weft up ended: ${said}`)))
    })
  }

  async end(signal) {
    this.process.kill(signal)
    await this.ended
  }

  run(...args) {
    return execFileSync(weft, args, { env: this.env, encoding: 'utf8' }).trim()
  }
}

test('a job from its submission to its end, over the death of the daemon', { skip, timeout: 300_000 }, async () => {
  const daemon = new Daemon()
  const chromium = await browser()
  try {
    const url = await daemon.up('127.0.0.1:0')
    const stranger = await (await chromium.newContext()).newPage()
    assert.equal((await stranger.goto(new URL('/', url).href)).status(), 401)
    assert.match(await stranger.locator('body').innerText(), /weft up/)

    const { page, faults } = await open(chromium, url)
    page.setDefaultTimeout(60_000)
    await page.waitForSelector('main >> text=weft run --floor 0.8 -- python train.py')
    assert.doesNotMatch(page.url(), /token/)

    const id = daemon.run('run', '-d', '--name', 'newcomer', '--floor', '0.5', '--memory', '2GiB', '--', train, '--persistent', '1GiB', '--gap-ms', '20')
    await page.getByRole('link', { name: `Job ${id} newcomer, running` }).waitFor()
    const waits = daemon.run('run', '-d', '--name', 'later', '--floor', '0.9', '--memory', '7GiB', '--gpus', '2', '--', train, '--persistent', '6GiB', '--devices', '0,1')
    await page.evaluate((i) => (location.hash = `#/jobs/${i}`), waits)
    await page.waitForSelector('main >> text=Why it waits')
    await page.waitForSelector('main >> text=Refused by')
    await page.evaluate((i) => (location.hash = `#/jobs/${i}`), id)
    await page.waitForSelector('[role=log] >> text=rate_per_s')
    await page.waitForSelector('main >> text=/observed \\d+/')

    await daemon.end('SIGKILL')
    await page.waitForSelector('.banner >> text=Stale')
    await daemon.up(new URL(url).host)
    await page.waitForSelector('.banner >> text=Stale', { state: 'detached' })
    await page.waitForSelector('.state.running')

    await page.getByRole('button', { name: 'Stop', exact: true }).click()
    await page.getByRole('button', { name: `Stop job ${id}` }).click()
    await page.waitForSelector('.state >> text=stopped')
    await page.waitForSelector('section:has(#log-title) >> text=complete')
    for (const hash of ['#/now', '#/jobs?all=1', '#/gpus/0', '#/events']) {
      await page.evaluate((h) => (location.hash = h), hash)
      await page.waitForTimeout(1500)
    }
    assert.deepEqual(faults.filter((f) => !/ERR_/.test(f)), [])
  } finally {
    await chromium.close()
    try {
      daemon.run('stop', '1-2')
    } catch {
      // it may have ended
    }
    await daemon.end('SIGTERM')
    await new Promise((done) => setTimeout(done, 1000))
    rmSync(daemon.state, { recursive: true, force: true, maxRetries: 5 })
  }
})
