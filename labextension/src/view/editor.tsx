/** The editor of a tool call's arguments, and what it would change. */
import type { JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';

import { line } from '../text.js';
import type { Change, Edited } from './edit.js';

const MOST_SHOWN = 12;

export interface EditorProps {
  tool: string;
  text: string;
  edited: Edited;
  setText: (text: string) => void;
  leave: () => void;
}

export function Editor({ tool, text, edited, setText, leave }: EditorProps): JSX.Element {
  const area = useRef<HTMLTextAreaElement>(null);
  useEffect(() => area.current?.focus(), []);
  const bad = edited.problem !== '';
  return (
    <div class="ipa-editor">
      <textarea
        ref={area}
        class="ipa-input ipa-code"
        rows={Math.min(16, Math.max(3, text.split('\n').length))}
        spellcheck={false}
        aria-label={`arguments of ${line(tool, 60)}, as JSON`}
        aria-invalid={bad}
        value={text}
        data-lm-suppress-shortcuts="true"
        onInput={event => setText(event.currentTarget.value)}
        onKeyDown={event => {
          if (event.key === 'Escape') {
            event.stopPropagation();
            leave();
          }
        }}
      />
      <p class={bad ? 'ipa-edit-said ipa-bad' : 'ipa-edit-said'} role={bad ? 'alert' : 'status'}>
        {bad ? edited.problem : edited.changes.length === 0 ? 'nothing is changed yet' : 'it runs with these changes:'}
      </p>
      {bad ? null : <Changes changes={edited.changes} />}
    </div>
  );
}

function Changes({ changes }: { changes: readonly Change[] }): JSX.Element | null {
  return changes.length === 0 ? null : (
    <ul class="ipa-changes">
      {changes.slice(0, MOST_SHOWN).map(each => (
        <li key={each.path}>
          <span class="ipa-change-path">{line(each.path, 80)}</span> {each.from === null ? null : <del>{line(each.from, 120)}</del>}{' '}
          {each.to === null ? <span class="ipa-hint">left out</span> : <ins>{line(each.to, 120)}</ins>}
        </li>
      ))}
      {changes.length > MOST_SHOWN ? <li>and {changes.length - MOST_SHOWN} more</li> : null}
    </ul>
  );
}
