/** Which buttons a card has, which of them may be pressed, and why the others may not (R202-R205). Pure. */
import type { Card } from '../wire.js';
import type { Call, Edited } from './edit.js';
import { ENDED, isPausing } from './states.js';

/** What a person asks of a task. */
export type Deed =
  | { kind: 'pause' | 'stop' | 'resume' | 'cancel' }
  | ({ kind: 'answer'; approval_id: string; answer: 'approved' | 'denied'; digest: string; choice: string | null } & Terms);

/** What may come with an answer: a denial's reason, and with an approved tool call other arguments, or that it is always approved. */
export interface Terms {
  reason?: string;
  arguments?: Record<string, unknown>;
  always?: boolean;
}

export type ButtonId = 'pause' | 'stop' | 'resume' | 'cancel';

/** `why` says why it may not be pressed now, and is empty when it may. */
export interface Button {
  id: ButtonId;
  label: string;
  why: string;
  hint: string;
  primary: boolean;
}

/** Whether and why not a task can be resumed from here: a resume needs a kernel. */
export interface ResumeDoor {
  why: string;
  hint: string;
}

/** The name under which a deed is under way, so that a second press does nothing. */
export function deedKey(deed: Deed): string {
  return deed.kind === 'answer' ? `answer ${deed.approval_id}` : deed.kind;
}

/**
 * The buttons that act on the task. The first place is Pause while it runs, Stop now while it drains, else Resume; so the two that
 * follow never move.
 */
export function buttonsOf(card: Card, doing: ReadonlySet<string>, door: ResumeDoor): Button[] {
  const under = (id: string, label: string, busy: string): string => (doing.has(id) ? busy : label);
  const first: Button =
    card.state === 'running' || card.state === 'queued'
      ? isPausing(card)
        ? {
            id: 'stop',
            label: under('stop', 'Stop now', 'Stopping…'),
            why: card.actions['pause'] ?? '',
            hint: 'stop the open activities instead of waiting for them',
            primary: false
          }
        : {
            id: 'pause',
            label: under('pause', 'Pause', 'Pausing…'),
            why: card.actions['pause'] ?? '',
            hint: 'let open activities finish, then stop there',
            primary: false
          }
      : {
          id: 'resume',
          label: under('resume', 'Resume', 'Resuming…'),
          why: (card.actions['resume'] ?? '') || waitsForAnswer(card) || door.why,
          hint: door.hint,
          primary: !ENDED.has(card.state) && card.asks.length === 0 && door.why === ''
        };
  return [
    first,
    {
      id: 'cancel',
      label: under('cancel', 'Cancel', 'Ending…'),
      why: card.actions['cancel'] ?? '',
      hint: 'end the task for good; created files stay',
      primary: false
    }
  ];
}

function waitsForAnswer(card: Card): string {
  return card.state === 'suspended' && card.asks.length > 0 ? 'it waits for your answer below' : '';
}

/** The answers to a question: its choices, or yes and no. */
export interface Answer {
  label: string;
  answer: 'approved' | 'denied';
  choice: string | null;
  primary: boolean;
}

export function answersOf(choices: readonly string[], kind: string): Answer[] {
  if (choices.length === 0) {
    return [
      { label: 'Approve', answer: 'approved', choice: null, primary: true },
      { label: 'Deny', answer: 'denied', choice: null, primary: false }
    ];
  }
  const chosen = choices.map(choice => ({ label: choice, answer: 'approved' as const, choice, primary: false }));
  return kind === 'outcome' ? chosen : [...chosen, { label: 'Deny', answer: 'denied', choice: null, primary: false }];
}

/** The buttons of a tool call: yes, yes with changes, no with a reason. */
export interface CallButton {
  name: 'approved' | 'denied' | 'edit' | 'edit-back' | 'deny' | 'deny-back';
  label: string;
  why: string;
  primary: boolean;
}

export interface CallShown {
  call: Call;
  /** What is in the editor, null while it is closed. */
  edited: Edited | null;
  /** What is given as a reason, null while nobody is about to deny. */
  reason: string | null;
  /** Why nothing may be answered yet. */
  why: string;
}

export function callButtons({ call, edited, reason, why }: CallShown): CallButton[] {
  const button = (name: CallButton['name'], label: string, not = '', primary = false): CallButton => ({ name, label, why: not, primary });
  if (reason !== null) {
    return [button('denied', 'Deny', why, true), button('deny-back', 'Back')];
  }
  if (edited !== null) {
    const changed = edited.changes.length > 0;
    const label = changed ? 'Approve with changes' : 'Approve';
    return [button('approved', label, why || edited.problem, true), button('edit-back', 'Leave as it was'), button('deny', 'Deny…', why)];
  }
  return [button('approved', 'Approve', why, true), button('edit', 'Edit…', why || call.why), button('deny', 'Deny…', why)];
}
