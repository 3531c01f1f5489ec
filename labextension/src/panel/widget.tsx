/** The panel in the side bar. */
import type { CommandRegistry } from '@lumino/commands';
import { Menu } from '@lumino/widgets';
import type { JSX } from 'preact';

import type { Desk } from '../desk.js';
import { isSameNotebook } from '../lab/resume.js';
import { taskIcon } from '../lab/icon.js';
import { ViewWidget } from '../lab/view.js';
import type { Row } from '../wire.js';
import { PanelView } from './panel.js';
import type { RowStore } from './rows.js';

export const PANEL_ID = 'ipyagent-panel';

/** The commands of a row, in order, an empty one for a line between; each is given the row's ids and state. */
export const ROW_COMMANDS = [
  ...['ipyagent:open', 'ipyagent:open-notebook', ''],
  ...['ipyagent:pause', 'ipyagent:resume', 'ipyagent:cancel', ''],
  ...['ipyagent:fork', 'ipyagent:replay', 'ipyagent:rerun', ''],
  ...['ipyagent:rename', 'ipyagent:export', 'ipyagent:delete']
] as const;

export class SessionsPanel extends ViewWidget {
  private notebook: string | null = null;

  constructor(
    private readonly store: RowStore,
    private readonly commands: CommandRegistry,
    private readonly desk: Pick<Desk, 'notice' | 'onChange'>
  ) {
    super();
    desk.onChange(() => this.redraw());
    this.id = PANEL_ID;
    this.addClass('ipa-side');
    this.title.icon = taskIcon;
    this.title.caption = 'Agent sessions';
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', 'agent sessions');
  }

  /** Tell which notebook is in front. */
  setNotebook(path: string | null): void {
    this.notebook = path;
    this.redraw();
  }

  protected view(): JSX.Element {
    return (
      <PanelView
        store={this.store}
        notebook={this.notebook}
        isSame={isSameNotebook}
        open={row => void this.commands.execute('ipyagent:open', argsOf(row))}
        note={id => this.desk.notice(id)?.text ?? ''}
        menu={(row, x, y) => this.openMenu(row, x, y)}
      />
    );
  }

  private openMenu(row: Row, x: number, y: number): void {
    const menu = new Menu({ commands: this.commands });
    for (const command of ROW_COMMANDS) {
      menu.addItem(command === '' ? { type: 'separator' } : { command, args: argsOf(row) });
    }
    menu.aboutToClose.connect(() => queueMicrotask(() => setTimeout(() => menu.dispose())));
    menu.open(x, y);
  }
}

/** What a command is told of a row. */
export function argsOf(row: Row): Record<string, string | number> {
  return {
    session_id: row.session_id,
    task_id: row.task_id ?? '',
    state: row.state,
    needs_you: row.needs_you,
    notebook: row.notebook ?? '',
    title: row.title
  };
}
