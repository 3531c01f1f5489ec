/** Notices: once, in the notification centre and in the browser, and beyond it when no page is open. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from '@playwright/test';

import { SETUP, free } from './cells.js';
import { Lab, button, card, command, python, runAll, shot, until } from './lab.js';

test('a question is told once, in all tabs together, and is gone when it is answered', async ({ page, context }) => {
  const told = join(process.env['TMPDIR'] ?? '/tmp', `ipyagent-told-${process.pid}`);
  const append = `import sys; open(sys.argv[1], "a").write(sys.stdin.read() + chr(10))`;
  const lab = await Lab.start([python, '-c', append, told].map(word => `--IpyagentLab.notify_command=${word}`));
  try {
    await context.addInitScript(() => {
      type Spied = Window & { shown: string[] };
      const spied = window as unknown as Spied;
      spied.shown = [];
      class Fake {
        static permission = 'granted';
        static requestPermission = (): Promise<string> => Promise.resolve('granted');
        constructor(title: string, options: { tag: string }) {
          spied.shown.push(`${title} ${options.tag}`);
        }
        close(): void {}
      }
      Object.defineProperty(window, 'Notification', { value: Fake });
    });
    await lab.open(page, 'notices.ipynb', [SETUP, free('tidy --title "Tidy up the checkout"')]);
    await command(page, 'ipyagent:browser-notifications');
    const other = await context.newPage();
    await other.addInitScript(() => Object.defineProperty(document, 'hidden', { get: () => true }));
    await lab.visit(other, 'lab/workspaces/second?reset');
    await runAll(page);
    await expect(card(page).locator('.ipa-ask')).toBeVisible();
    const toasts = [page.locator('.Toastify__toast'), other.locator('.Toastify__toast')];
    await expect.poll(async () => (await toasts[0]?.count() ?? 0) + (await toasts[1]?.count() ?? 0)).toBe(1);
    const shown = async (): Promise<number> => await other.evaluate(() => (window as unknown as { shown: string[] }).shown.length);
    expect(await shown()).toBe(await toasts[1]?.count()); // the hidden tab, if it was the one, told the browser as well
    await shot((await page.locator('.Toastify__toast').count()) > 0 ? page : other, 'notices');
    await command(page, 'docmanager:save');
    await page.reload();
    await expect(card(page).locator('.ipa-ask')).toBeVisible();
    await page.waitForTimeout(1500);
    expect(await page.locator('.Toastify__toast').count()).toBe(0); // told before the reload, and not again
    await button(card(page), 'denied').click();
    await expect(card(page).locator('.ipa-ask')).toHaveCount(0);
    await expect(other.locator('.Toastify__toast', { hasText: 'needs you' })).toHaveCount(0);
    await until(() => Promise.resolve(existsSync(told)), 10_000, () => lab.log);
    const kinds = (): string[] => readFileSync(told, 'utf8').trim().split('\n').map(each => (JSON.parse(each) as { kind: string }).kind);
    expect(kinds()).toContain('needs_you');
    expect(kinds().filter(kind => kind === 'needs_you').length).toBe(1);
  } finally {
    await lab.stop();
  }
});
