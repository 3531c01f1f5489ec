/** The last picture of a task whose session has gone on. */
import type { Api } from '../api.js';
import type { TaskRef } from '../guards.js';
import type { Card } from '../wire.js';

/** The card right after the last event of the task; null when the session never had it. */
export async function pastCard(api: Pick<Api, 'detail' | 'cardAt'>, task: TaskRef): Promise<Card | null> {
  const last = (await api.detail(task.session_id)).ends.get(task.task_id);
  return last === undefined ? null : api.cardAt(task.session_id, last);
}
