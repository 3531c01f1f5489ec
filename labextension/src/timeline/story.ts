/** An event as one line for a person, as `ipyagent_sessions.views.story` tells it. An unknown type is shown with its payload. */
import { isFields } from '../guards.js';
import { duration, line, size } from '../text.js';
import type { EventLine } from '../wire.js';

type Body = Record<string, unknown>;
const str = (value: unknown): string => (typeof value === 'string' ? value : value === undefined || value === null ? '' : String(value));
const opt = (before: string, value: unknown): string => (str(value) === '' ? '' : before + str(value));
const count = (value: unknown): number => (Array.isArray(value) ? value.length : 0);
const error = (body: Body): string => `${str(body['error_type'])}: ${str(body['error'])}`;

const listed = (before: string, value: unknown): string => (count(value) === 0 ? '' : `${before}: ${(value as unknown[]).map(str).join(', ')}`);
const joined = (...parts: string[]): string => parts.filter(part => part !== '').join('; ');

const TELLERS: Record<string, (body: Body) => string> = {
  SessionCreated: b => str(b['title']),
  SessionForked: b => `from ${str(b['parent_session'])} at ${str(b['parent_seq'])}${opt(': ', b['direction'])}`,
  TaskQueued: b => str(b['target']).split(':').pop() ?? '',
  TaskStarted: b => `attempt ${str(b['attempt'] ?? 1)}`,
  TaskSuspended: b => `${str(b['reason'])}${opt(': ', b['detail'])}`,
  TaskInterrupted: b => `${count(b['drained'])} finished first, ${count(b['aborted'])} stopped${opt('; ', listed('still running', b['still_running']))}`,
  TaskResumed: b => `after ${joined(str(b['cause']), str(b['instruction']), listed('not restored', b['not_restored']))}`,
  TaskCompleted: () => '',
  TaskFailed: error,
  TaskCancelled: b =>
    joined(
      str(b['reason']),
      listed('undone', b['compensated']),
      listed('not undone', b['compensations_pending']),
      listed('undoing failed, a person is needed', b['needs_person']),
      listed('still running', b['still_running'])
    ),
  ActivityStarted: b =>
    b['kind'] === 'stage' ? `stage ${str(b['name'])}` : b['kind'] === 'sleep' ? `until ${str(b['until'])}` : b['effect'] === undefined || b['effect'] === 'none' ? '' : str(b['effect']),
  ActivityProgressed: b => `${str(b['done'] ?? 0)} of ${str(b['total']) || 'unknown'}${opt(' ', b['text'])}`,
  ActivityCompleted: b => (b['kind'] === 'stage' ? `stage ${str(b['name'])}` : b['result_lost'] ? `its result is lost: ${str(b['result_lost'])}` : b['late'] ? 'late' : ''),
  ActivityFailed: b => `${error(b)}${b['still_running'] ? ', still running' : ''}`,
  ActivityRetried: b => `${error(b)}; again in ${duration(Number(b['wait_s'] ?? 0))}`,
  ActivityCompensated: b => (b['ok'] === false ? `undoing failed: ${str(b['error'])}` : 'undone'),
  MessageAdded: b => `${str(b['role'])}: ${str(b['text'])}`,
  ApprovalRequested: b => str(b['question']),
  ApprovalResolved: b => `${str(b['choice']) || str(b['answer'])}${opt(' by ', b['by'])}${opt(': ', b['reason'])}`,
  FileWritten: b => (b['checksum'] === null ? `${str(b['path'])} removed` : `${str(b['path'])} (${size(typeof b['size'] === 'number' ? b['size'] : null)})`),
  FileRolledBack: b => `${str(b['path'])} ${str(b['checksum']) === '' ? 'is removed: it was not there before' : 'is back'}`,
  EffectDeclared: b => `${str(b['what'])} ${str(b['name'])}${opt(': ', b['note'])}`,
  CheckpointCreated: b => `${str(b['label'])} ${str(b['trigger'])}`.trim(),
  RecoveryCompleted: b => str(b['sentence']),
  CheckFailed: b => str(b['sentence']),
  ControlRequested: b => `${str(b['action'])}${b['outcome'] === 'refused' ? ` refused: ${str(b['reason'])}` : ''}`,
  AlarmRaised: b => `${str(b['kind'])}: ${str(b['text'])}`
};

export function storyOf(event: EventLine): string {
  if (event.payload_bytes !== undefined && event.payload_bytes !== null) {
    return `(${size(event.payload_bytes)})`;
  }
  const body = isFields(event.payload) ? event.payload : {};
  const told = TELLERS[event.event_type]?.(body) ?? JSON.stringify(body);
  const took = event.execution_time_ms;
  const after = typeof took === 'number' ? duration(took / 1000) : '';
  return line([told, after].filter(part => part !== '').join(' · '), 300);
}

/** The event's type in words: "ActivityStarted" is "activity started". */
export function wordsOf(type: string): string {
  return line(type, 60)
    .replace(/([a-z])([A-Z])/g, '$1 $2')
    .toLowerCase();
}

const BAD = new Set(['ActivityFailed', 'CheckFailed', 'ActivityRetried', 'TaskFailed', 'AlarmRaised', 'ErrorOccurred', 'BudgetExceeded']);

export function isFailure(event: EventLine): boolean {
  return BAD.has(event.event_type) || (event.event_type === 'TaskSuspended' && isFields(event.payload) && event.payload['reason'] === 'worker_lost');
}
