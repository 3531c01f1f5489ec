/** Where a person begins: the launcher, the menu, a notebook that was closed, and one that is read without a kernel. */
import { expect, test } from '@playwright/test';

import { Lab, button, card, runAll, shot } from './lab.js';

let lab: Lab;
test.beforeAll(async () => {
  lab = await Lab.start();
});
test.afterAll(async () => lab.stop());

test('the launcher makes a notebook whose task runs, and the menu has what can be done to it', async ({ page }) => {
  await lab.visit(page, 'lab?reset');
  await page.locator('.jp-LauncherCard', { hasText: 'Durable Task' }).click();
  await page.locator('.jp-NotebookPanel .jp-Cell').first().waitFor();
  await shot(page, 'demo-notebook');
  await page.waitForFunction(() => {
    type App = { shell: { currentWidget: { sessionContext?: { session?: { kernel?: { status: string } } } } | null } };
    return (window as unknown as { jupyterapp: App }).jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle';
  });
  await runAll(page);
  await expect(card(page)).toHaveAttribute('data-state', 'running');
  await expect(card(page).locator('.ipa-title')).toHaveText('Read a book');
  await page.locator('.lm-MenuBar-itemLabel', { hasText: 'Agents' }).click();
  await expect(page.locator('.lm-Menu-itemLabel', { hasText: 'Show Agent Sessions' })).toBeVisible();
  await shot(page, 'menu');
  await page.locator('.lm-Menu-itemLabel', { hasText: 'Show Agent Sessions' }).click();
  await expect(page.locator('.ipa-row', { hasText: 'Read a book' })).toBeVisible();
  await button(card(page), 'pause').click();
  await expect(card(page)).toHaveAttribute('data-state', 'interrupted');
});
