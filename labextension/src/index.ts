/** The plugins: what is put where when the page starts. Everything that costs something happens later, when it is first seen. */
import { ILabShell, ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette, WidgetTracker } from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';
import { INotebookTracker } from '@jupyterlab/notebook';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import { Token } from '@lumino/coreutils';

import { Api } from './api.js';
import { Desk } from './desk.js';
import { addCommands } from './lab/commands.js';
import { openDemo } from './lab/demo.js';
import { LabDraw } from './lab/drawing.js';
import { carrierOf, liveSocket } from './lab/http.js';
import { taskIcon } from './lab/icon.js';
import { NotebookKernels } from './lab/kernels.js';
import { openRecorded } from './lab/notebooks.js';
import { Notifier, mayNotify, type Wishes } from './lab/notify.js';
import { StatusItem } from './lab/status.js';
import { MIME, SessionTab, TaskOutput } from './lab/view.js';
import { LiveFeed } from './live.js';
import { RowStore } from './panel/rows.js';
import { PANEL_ID, SessionsPanel } from './panel/widget.js';
import type { Intent } from './timeline/timeline.js';

const IDesk = new Token<Desk>('@ipyagent/lab:IDesk', 'The sessions of this page: routes, live stream, controls.');

const desk: JupyterFrontEndPlugin<Desk> = {
  id: '@ipyagent/lab:desk',
  description: 'What cards, panel and status bar share.',
  autoStart: true,
  provides: IDesk,
  optional: [INotebookTracker, IRenderMimeRegistry],
  activate: (app: JupyterFrontEnd, notebooks: INotebookTracker | null, registry: IRenderMimeRegistry | null): Desk => {
    const { serverSettings } = app.serviceManager;
    const api = new Api(carrierOf(serverSettings));
    const feed = new LiveFeed({
      connect: () => liveSocket(serverSettings),
      exists: () =>
        api.status().then(
          () => true,
          (error: unknown) => !(error instanceof Error && 'trouble' in error && error.trouble === 'missing')
        )
    });
    const open = (id: string): void => void app.commands.execute('ipyagent:open', { session_id: id });
    return new Desk(api, feed, new NotebookKernels(app, notebooks), open, registry === null ? null : new LabDraw(registry));
  }
};

const outputs: JupyterFrontEndPlugin<void> = {
  id: '@ipyagent/lab:outputs',
  description: 'The live card of a task in the output of its cell.',
  autoStart: true,
  requires: [IDesk, IRenderMimeRegistry],
  activate: (_app: JupyterFrontEnd, shared: Desk, registry: IRenderMimeRegistry): void => {
    registry.addFactory({ safe: true, mimeTypes: [MIME], createRenderer: () => new TaskOutput(shared) }, 0);
  }
};

const panel: JupyterFrontEndPlugin<void> = {
  id: '@ipyagent/lab:plugin',
  description: 'The panel of all sessions, their tabs, commands and the status bar.',
  autoStart: true,
  requires: [IDesk],
  optional: [ICommandPalette, ILabShell, ILayoutRestorer, INotebookTracker, ISettingRegistry, IStatusBar, ILauncher],
  activate: (
    app: JupyterFrontEnd,
    shared: Desk,
    palette: ICommandPalette | null,
    labShell: ILabShell | null,
    restorer: ILayoutRestorer | null,
    notebooks: INotebookTracker | null,
    settings: ISettingRegistry | null,
    statusBar: IStatusBar | null,
    launcher: ILauncher | null
  ): void => {
    const sessions = new SessionsPanel(new RowStore(shared.api, shared.feed), app.commands, shared);
    const tabs = new WidgetTracker<SessionTab>({ namespace: 'ipyagent-session' });
    const showPanel = (): void => {
      if (!sessions.isAttached) {
        app.shell.add(sessions, 'left', { rank: 450 });
      }
      app.shell.activateById(PANEL_ID);
    };
    const open = (id: string, intent: Intent | null): void => {
      let tab = tabs.find(each => each.sessionId === id);
      if (tab === undefined) {
        tab = new SessionTab(shared, id);
        void tabs.add(tab);
      }
      if (!tab.isAttached) {
        app.shell.add(tab, 'main', { mode: 'tab-after' });
      }
      app.shell.activateById(tab.id);
      if (intent !== null) {
        tab.wish(intent);
      }
    };
    const openNotebook = (recorded: string, cell: string | null): void => void openRecorded(app, notebooks, recorded, cell);
    addCommands(app, shared, { showPanel, open, current: () => currentOf(labShell, tabs), openNotebook }, palette);
    app.commands.addCommand('ipyagent:demo', {
      label: args => (args['isLauncher'] ? 'Durable Task' : 'New Notebook with a Durable Task'),
      caption: 'A notebook with a task that outlives its kernel',
      icon: args => (args['isPalette'] ? undefined : taskIcon),
      execute: args => openDemo(app, typeof args['cwd'] === 'string' ? args['cwd'] : '')
    });
    palette?.addItem({ command: 'ipyagent:demo', category: 'Agent Sessions', args: { isPalette: true } });
    launcher?.add({ command: 'ipyagent:demo', category: 'Other', rank: 10, args: { isLauncher: true } });
    notebooks?.currentChanged.connect((_, current) => sessions.setNotebook(current?.context.path ?? null));
    if (restorer !== null) {
      restorer.add(sessions, PANEL_ID);
      void restorer.restore(tabs, { command: 'ipyagent:open', args: tab => ({ session_id: tab.sessionId }), name: tab => tab.sessionId });
    }
    void settle(app, settings, sessions, side => app.shell.add(sessions, side, { rank: 450 }));
    void app.restored.then(async () => {
      const known = (await settings?.load(panel.id).catch(() => null)) ?? null;
      if (statusBar !== null && known?.composite['statusBar'] !== false) {
        addStatus(statusBar, shared, showPanel);
      }
      new Notifier(shared, () => wishesOf(known));
      app.commands.addCommand('ipyagent:browser-notifications', {
        label: 'Notify in the Browser While the Page Is Hidden',
        isToggled: () => wishesOf(known).browser,
        isEnabled: () => known !== null,
        execute: async () => {
          const on = !wishesOf(known).browser && (await mayNotify());
          await known?.set('browserNotifications', on);
        }
      });
      palette?.addItem({ command: 'ipyagent:browser-notifications', category: 'Agent Sessions' });
    });
  }
};

/** Put the panel where the person wants it. */
async function settle(
  app: JupyterFrontEnd,
  settings: ISettingRegistry | null,
  sessions: SessionsPanel,
  add: (side: 'left' | 'right') => void
): Promise<void> {
  add('left'); // at once, so that the restored layout finds it
  await app.restored;
  const side = await settings?.get(panel.id, 'side').catch(() => null);
  if (side?.composite === 'right' && !sessions.isVisible) {
    add('right');
  }
}

function wishesOf(settings: ISettingRegistry.ISettings | null): Wishes {
  const notices = settings?.composite['notifications'];
  return {
    notices: notices === 'needs' || notices === 'none' ? notices : 'all',
    browser: settings?.composite['browserNotifications'] === true
  };
}

function addStatus(statusBar: IStatusBar, shared: Desk, showPanel: () => void): void {
  const item: StatusItem = new StatusItem(shared.feed, showPanel, () => item.update());
  statusBar.registerStatusItem('@ipyagent/lab:status', { align: 'left', rank: 4, item, isActive: () => true });
}

function currentOf(labShell: ILabShell | null, tabs: WidgetTracker<SessionTab>): string | null {
  const current = labShell === null ? tabs.currentWidget : labShell.currentWidget;
  return current instanceof SessionTab ? current.sessionId : null;
}

/** The plugin, with what its start costs written into the page's performance timeline as `ipyagent:activate`. */
function measured<T>(plugin: JupyterFrontEndPlugin<T>): JupyterFrontEndPlugin<T> {
  const { activate } = plugin;
  return {
    ...plugin,
    activate: (...given: Parameters<typeof activate>) => {
      const start = performance.now();
      const made = activate(...given);
      performance.measure('ipyagent:activate', { start, end: performance.now() });
      return made;
    }
  };
}

export default [measured(desk), measured(outputs), measured(panel)];
