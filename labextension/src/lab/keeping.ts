/** Deleting a session, after saying what is lost; and saving it as a file of the person's own. */
import { Dialog, InputDialog, Notification, showDialog } from '@jupyterlab/apputils';

import type { Api } from '../api.js';
import { lossText } from '../branch/words.js';
import { line } from '../text.js';

/** The forms of an export: what is asked for, how it is called, and what its file ends in. */
const FORMS = [
  { kind: 'archive', name: 'an archive that another store can import', ending: '.ipyagent.zip' },
  { kind: 'notebook', name: 'a notebook of its story', ending: '.ipynb' },
  { kind: 'jsonl', name: 'its events, one JSON a line', ending: '.jsonl' },
  { kind: 'atif', name: 'an ATIF trajectory', ending: '.atif.json' },
  { kind: 'otel', name: 'spans of OpenTelemetry', ending: '.otlp.jsonl' }
] as const;

export async function deleteSession(api: Pick<Api, 'loss' | 'remove'>, sessionId: string): Promise<void> {
  const loss = await api.loss(sessionId);
  if (loss.problem !== '') {
    await showDialog({ title: 'It cannot be deleted now', body: line(loss.problem, 300), buttons: [Dialog.okButton()] });
    return;
  }
  const answer = await showDialog({
    title: 'Delete this session?',
    body: lossText(loss).join(' '),
    buttons: [Dialog.cancelButton({ label: 'Keep It' }), Dialog.warnButton({ label: 'Delete' })],
    defaultButton: 0
  });
  if (answer.button.accept) {
    await api.remove(sessionId, loss.events);
  }
}

export async function exportSession(api: Pick<Api, 'export'>, sessionId: string, title: string): Promise<void> {
  const answer = await InputDialog.getItem({
    title: `Export ${line(title, 60)}`,
    label: 'As',
    items: FORMS.map(form => form.name),
    okLabel: 'Export'
  });
  const form = FORMS.find(each => each.name === answer.value);
  if (!answer.button.accept || form === undefined) {
    return;
  }
  const address = URL.createObjectURL(await api.export(sessionId, form.kind));
  const link = document.createElement('a');
  link.href = address;
  link.download = `${sessionId}${form.ending}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
  Notification.success(`${link.download} is saved where this browser puts what it downloads`, { autoClose: 5000 });
}
