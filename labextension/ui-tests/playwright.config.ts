/**
 * Browser tests: a real JupyterLab, real kernels, Chromium without a window.
 *
 *   IPYAGENT_PYTHON   the Python whose environment has the built wheel (default: the checkout's .venv)
 *   CHROMIUM          the browser (default: chromium on PATH at /usr/bin)
 *   IPYAGENT_SHOTS    where screenshots go (default: lib/ui-tests/shots)
 */
import { defineConfig } from '@playwright/test';

export default defineConfig({
  testDir: '.',
  outputDir: '../lib/ui-tests/runs',
  workers: 2, // a file is a worker's: each has a JupyterLab of its own
  retries: 0,
  timeout: 120_000,
  expect: { timeout: 20_000 },
  reporter: 'list',
  use: {
    headless: true,
    viewport: { width: 1280, height: 820 },
    locale: 'en-GB',
    timezoneId: 'UTC',
    video: 'off',
    launchOptions: {
      executablePath: process.env['CHROMIUM'] ?? '/usr/bin/chromium',
      args: [
        '--no-sandbox',
        '--disable-gpu',
        '--disable-quic',
        '--no-first-run',
        '--disable-background-networking',
        '--disable-component-update',
        '--disable-sync'
      ]
    }
  }
});
