import { test } from '@playwright/test';
import { Lab, runAll, shot, dark, button, command } from './lab.js';
import { SETUP, busy, free } from './cells.js';

let lab: Lab;
test.beforeAll(async () => { lab = await Lab.start(); });
test.afterAll(async () => { console.log(lab.log.split('\n').filter(l => /rror|Traceback/.test(l)).slice(-20).join('\n')); await lab.stop(); });

test('look', async ({ page }) => {
  page.on('console', m => { if (m.type() === 'error' || m.type() === 'warning') console.log('console', m.text().slice(0, 300)); });
  await lab.open(page, 'audit.ipynb', [SETUP, free('tidy --title "Tidy up the checkout"'), busy('audit --n 60 --title "Audit of the standard library"')]);
  await runAll(page);
  await page.waitForTimeout(6000);
  const c = page.locator('.jp-OutputArea .ipa-card').last();
  await button(c, 'timeline').click({ timeout: 5000 }).catch(e => console.log(String(e).slice(0, 300)));
  await page.waitForTimeout(1000);
  await shot(c, 'b1');
  await command(page, 'ipyagent:show-panel');
  await page.locator('.ipa-row').last().click();
  await page.waitForTimeout(1500);
  await page.locator('.ipa-tab .ipa-lanes').click({ position: { x: 400, y: 50 } });
  await page.waitForTimeout(1000);
  await page.locator('.ipa-tab .ipa-lanes').hover({ position: { x: 500, y: 52 } });
  await page.waitForTimeout(300);
  await shot(page, 'b2');
  await dark(page);
  await page.waitForTimeout(800);
  await shot(page, 'b3');
});
