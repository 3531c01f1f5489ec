/** The last picture of a task whose session has gone on. */
import type { Api } from '../api.js';
import type { TaskRef } from '../guards.js';
import type { Card } from '../wire.js';

const PAGE = 10_000;

/** The card right after the last event of the task; null when the session never had it. */
export async function pastCard(api: Pick<Api, 'events' | 'cardAt'>, task: TaskRef): Promise<Card | null> {
  let last = 0;
  for (let after: number | null = 0; after !== null; ) {
    const page = await api.events(task.session_id, after, PAGE, 0);
    for (const event of page.events) {
      if (event.task_id === task.task_id) {
        last = event.seq;
      }
    }
    after = page.next;
  }
  return last === 0 ? null : api.cardAt(task.session_id, last);
}
