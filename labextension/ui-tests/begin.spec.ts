/** Where a person begins: the launcher, the menu, a notebook that was closed, and one that is read without a kernel. */
import { expect, test } from '@playwright/test';

import { Lab, button, card, command, runAll, shot } from './lab.js';

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
  await command(page, 'docmanager:save');
});

test('resumed from the sidebar, a notebook that was closed is opened, set up after asking, and goes on', async ({ page }) => {
  await lab.visit(page, 'lab?reset');
  const sessions = await lab.json<{ id: string }[]>('api/sessions');
  await Promise.all(sessions.map(({ id }) => lab.remove(`api/sessions/${id}`)));
  await command(page, 'ipyagent:show-panel');
  const row = page.locator('.ipa-row', { hasText: 'Read a book' });
  await row.click({ button: 'right' });
  await page.locator('.lm-Menu-itemLabel', { hasText: 'Resume' }).click();
  await expect(page.locator('.jp-Dialog')).toContainText('cells tagged agent-setup are run');
  await shot(page, 'resume-closed');
  await page.locator('.jp-Dialog button', { hasText: 'Open and Go On' }).click();
  await expect(row).toContainText(/opening|asking|set-up cell/);
  await expect(page.locator('.jp-NotebookPanel')).toBeVisible();
  await expect(row).toContainText('running', { timeout: 30_000 });
  const list = await lab.json<{ rows: { session_id: string; title: string }[] }>('ipyagent/api/sessions');
  expect(list.rows.length).toBe(1); // the cell that starts a task was not among those that were run
  const { events } = await lab.json<{ events: { event_type: string; activity_id?: string }[] }>(`ipyagent/api/sessions/${list.rows[0]?.session_id ?? ''}/events`);
  const done = events.filter(event => event.event_type === 'ActivityCompleted').map(event => event.activity_id);
  expect(new Set(done).size).toBe(done.length);
  await command(page, 'docmanager:save');
});

test('saved, and opened again where no kernel is: the notebook still shows the truth', async ({ page }) => {
  await lab.visit(page, 'lab/tree/Untitled.ipynb?reset');
  await expect(card(page).locator('.ipa-title')).toHaveText('Read a book');
  await button(card(page), 'cancel').click();
  await button(card(page), 'cancel-yes').click();
  await expect(card(page)).toHaveAttribute('data-state', 'cancelled');
  await command(page, 'docmanager:save');
  const sessions = await lab.json<{ id: string }[]>('api/sessions');
  await Promise.all(sessions.map(({ id }) => lab.remove(`api/sessions/${id}`)));
  await lab.visit(page, 'lab/workspaces/later/tree/Untitled.ipynb?reset');
  await expect(card(page)).toHaveAttribute('data-state', 'cancelled');
  await button(card(page), 'timeline').click();
  await expect(card(page).locator('.ipa-lanes canvas')).toBeVisible();
});
