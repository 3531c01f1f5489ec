/** A JupyterLab of its own for a test file: started, given notebooks, and ended, with its store in a temporary folder. */
import { spawn, type ChildProcess } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { expect, type Locator, type Page } from '@playwright/test';

const here = dirname(fileURLToPath(import.meta.url));
export const python = process.env['IPYAGENT_PYTHON'] ?? join(here, '..', '..', '.venv', 'bin', 'python');
const TOKEN = 'ui-tests';

export class Lab {
  private constructor(
    readonly url: string,
    readonly folder: string,
    readonly store: string,
    private readonly server: ChildProcess,
    private readonly said: string[]
  ) {}

  static async start(more: readonly string[] = []): Promise<Lab> {
    const folder = mkdtempSync(join(tmpdir(), 'ipyagent-ui-'));
    const [store, work] = [join(folder, 'store'), join(folder, 'work')];
    mkdirSync(work);
    const quiet = join(folder, 'settings', '@jupyterlab', 'apputils-extension');
    mkdirSync(quiet, { recursive: true });
    writeFileSync(join(quiet, 'notification.jupyterlab-settings'), '{"fetchNews": "false", "checkForUpdates": false}');
    const port = await freePort();
    const said: string[] = [];
    const server = spawn(
      python,
      [
        ...['-P', '-m', 'jupyterlab', '--allow-root', '--no-browser', `--port=${port}`, '--ServerApp.port_retries=0'],
        ...[`--IdentityProvider.token=${TOKEN}`, `--ServerApp.root_dir=${work}`, '--LabApp.expose_app_in_browser=True'],
        ...['--LabApp.news_url=None', '--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate', ...more]
      ],
      { env: { ...process.env, ...homeOf(folder), IPYAGENT_STORE: store }, stdio: ['ignore', 'pipe', 'pipe'] }
    );
    server.stdout?.on('data', (data: Buffer) => said.push(String(data)));
    server.stderr?.on('data', (data: Buffer) => said.push(String(data)));
    const lab = new Lab(`http://127.0.0.1:${port}/`, folder, store, server, said);
    await until(async () => (await lab.get('api/status').catch(() => null))?.ok === true, 60_000, () => said.join(''));
    return lab;
  }

  get log(): string {
    return this.said.join('');
  }

  async stop(): Promise<void> {
    const ended = new Promise(resolve => this.server.once('exit', resolve));
    this.server.kill('SIGTERM');
    const timer = setTimeout(() => this.server.kill('SIGKILL'), 8000);
    await ended;
    clearTimeout(timer);
    rmSync(this.folder, { recursive: true, force: true });
  }

  get(path: string): Promise<Response> {
    return fetch(`${this.url}${path}`, { headers: { Authorization: `token ${TOKEN}` } });
  }

  /** Delete what is at a path, as a kernel's session. */
  remove(path: string): Promise<Response> {
    return fetch(`${this.url}${path}`, { method: 'DELETE', headers: { Authorization: `token ${TOKEN}` } });
  }

  /** Post JSON as a program with a token does. */
  async post<T>(path: string, body: object): Promise<T> {
    const headers = { Authorization: `token ${TOKEN}`, 'Content-Type': 'application/json' };
    return (await (await fetch(`${this.url}${path}`, { method: 'POST', headers, body: JSON.stringify(body) })).json()) as T;
  }

  async json<T>(path: string): Promise<T> {
    return (await (await this.get(path)).json()) as T;
  }

  /** Write a notebook with these code cells and open it. */
  async open(page: Page, name: string, cells: readonly string[]): Promise<void> {
    const notebook = {
      cells: cells.map((source, at) => ({ cell_type: 'code', id: `cell-${at}`, execution_count: null, metadata: {}, outputs: [], source })),
      metadata: { kernelspec: { display_name: 'Python 3', language: 'python', name: 'python3' } },
      nbformat: 4,
      nbformat_minor: 5
    };
    writeFileSync(join(this.folder, 'work', name), JSON.stringify(notebook));
    await this.visit(page, `lab/tree/${name}?reset`);
    await page.locator('.jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell').first().waitFor();
    await kernelReady(page);
  }

  /** Make an empty file beside the notebooks, which a cell waits for. */
  touch(name: string): void {
    writeFileSync(join(this.folder, 'work', name), '');
  }

  async visit(page: Page, path: string): Promise<void> {
    await page.context().addCookies([{ name: 'x', value: 'x', url: this.url }]);
    await page.goto(`${this.url}${path}${path.includes('?') ? '&' : '?'}token=${TOKEN}`);
    await page.waitForFunction(() => 'jupyterapp' in window, undefined, { timeout: 60_000 });
    await page.evaluate(() => (window as unknown as { jupyterapp: { restored: Promise<void> } }).jupyterapp.restored);
    await page.locator('#jupyterlab-splash').waitFor({ state: 'detached' });
  }
}

/** Wait until the notebook in front has a kernel. */
export async function kernelReady(page: Page): Promise<void> {
  await page.waitForFunction(() => {
    type App = { shell: { currentWidget: { sessionContext?: { session?: { kernel?: { status: string } | null } | null } } | null } };
    const app = (window as unknown as { jupyterapp?: App }).jupyterapp;
    return app?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle';
  });
}

/** Execute a command of JupyterLab; with `wait` false without waiting for its end. */
export async function command(page: Page, id: string, args: Record<string, string> = {}, wait = true): Promise<void> {
  await page.evaluate(
    async ([name, given, waits]) => {
      const app = (window as unknown as { jupyterapp: { commands: { execute(id: string, args: object): Promise<unknown> } } }).jupyterapp;
      const done = app.commands.execute(name, given);
      if (waits) {
        await done;
      }
    },
    [id, args, wait] as const
  );
}

/** Run all cells and do not wait for their end. */
export const runAll = (page: Page): Promise<void> => command(page, 'notebook:run-all-cells', {}, false);

export const card = (page: Page): Locator => page.locator('.jp-OutputArea .ipa-card').first();

/** Scroll there. A notebook takes cells out of the page and puts them back while it is laid out anew, so one try may find none. */
export async function inSight(place: Locator): Promise<void> {
  await expect(() => place.scrollIntoViewIfNeeded({ timeout: 2000 })).toPass();
}

export const button = (where: Locator, name: string): Locator => where.locator(`[data-ipa="${name}"]`);

export async function dark(page: Page): Promise<void> {
  await command(page, 'apputils:change-theme', { theme: 'JupyterLab Dark' });
  await page.waitForFunction(() => document.body.dataset['jpThemeLight'] === 'false');
  await page.locator('#jupyterlab-splash').waitFor({ state: 'detached' });
}

/** Scroll a log to its beginning, once it is there and stands at its end. */
export async function toTop(log: Locator): Promise<void> {
  await expect.poll(() => log.evaluate(node => node.scrollTop)).toBeGreaterThan(0);
  await log.evaluate(node => (node.scrollTop = 0));
}

/** Save a picture of `what` for people to look at. */
export async function shot(what: Page | Locator, name: string): Promise<void> {
  const folder = process.env['IPYAGENT_SHOTS'] ?? join(here, '..', 'lib', 'ui-tests', 'shots');
  mkdirSync(folder, { recursive: true });
  await what.screenshot({ path: join(folder, `${name}.png`) });
}

export async function until(holds: () => Promise<boolean>, ms: number, otherwise: () => string): Promise<void> {
  const end = Date.now() + ms;
  while (!(await holds())) {
    if (Date.now() > end) {
      throw new Error(`not within ${ms} ms\n${otherwise()}`);
    }
    await new Promise(resolve => setTimeout(resolve, 100));
  }
}

function homeOf(folder: string): Record<string, string> {
  return {
    HOME: folder,
    JUPYTER_CONFIG_DIR: join(folder, 'config'),
    JUPYTER_DATA_DIR: join(folder, 'data'),
    JUPYTER_RUNTIME_DIR: join(folder, 'runtime'),
    JUPYTERLAB_WORKSPACES_DIR: join(folder, 'workspaces'),
    JUPYTERLAB_SETTINGS_DIR: join(folder, 'settings')
  };
}

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const probe = createServer();
    probe.once('error', reject);
    probe.listen(0, '127.0.0.1', () => {
      const address = probe.address();
      probe.close(() => resolve(typeof address === 'object' && address !== null ? address.port : 0));
    });
  });
}
