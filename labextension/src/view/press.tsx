/** A button that says why it may not be pressed, keeps its width, and cannot be pressed twice by a double click. */
import type { ComponentChildren, JSX } from 'preact';
import { useId, useState } from 'preact/hooks';

import { line } from '../text.js';

export interface PressProps {
  label: string;
  /** Why it may not be pressed now; empty when it may. */
  why?: string;
  hint?: string;
  primary?: boolean;
  danger?: boolean;
  pressed?: boolean;
  /** The longest label that will stand here, so that nothing moves when it changes. */
  reserve?: string;
  name?: string;
  onPress: () => void;
  children?: ComponentChildren;
}

/** The second click of a double click counts as none: the button under it may already mean something else. */
export function isRepeat(event: { detail: number }): boolean {
  return event.detail > 1;
}

export function Press(props: PressProps): JSX.Element {
  const { label, primary = false, danger = false, reserve = '', name = '' } = props;
  const [why, hint] = [line(props.why ?? '', 300), line(props.hint ?? '', 300)];
  const [told, setTold] = useState(false);
  const reason = useId();
  const disabled = why !== '';
  const classes = ['ipa-btn', primary && 'ipa-primary', danger && 'ipa-danger', told && 'ipa-told'].filter(Boolean).join(' ');
  return (
    <span class="ipa-press">
      <button
        type="button"
        class={classes}
        data-ipa={name}
        data-lm-suppress-shortcuts="true"
        title={disabled ? why : hint}
        aria-disabled={disabled}
        aria-describedby={disabled ? reason : undefined}
        aria-pressed={props.pressed}
        onBlur={() => setTold(false)}
        onClick={event => {
          event.stopPropagation();
          if (isRepeat(event)) {
            return;
          }
          if (disabled) {
            setTold(true);
          } else {
            props.onPress();
          }
        }}
      >
        <span class="ipa-label">{props.children ?? label}</span>
        {reserve === '' ? null : (
          <span class="ipa-reserve" aria-hidden="true">
            {reserve}
          </span>
        )}
      </button>
      {disabled ? (
        <span class="ipa-why" id={reason} role="tooltip">
          {why}
        </span>
      ) : null}
    </span>
  );
}
