/** Fork here, or run from here again: what it means, what stays in the world, and the new session when it is made. */
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';

import type { Api } from '../api.js';
import { ApiError } from '../api-errors.js';
import { block, line } from '../text.js';
import type { ResumeDoor } from '../view/buttons.js';
import { Press } from '../view/press.js';
import type { Aftermath } from '../wire.js';
import { beginsAt, commandOf, directionOf, staysOf, titleOf, told, type Home, type Way } from './words.js';

/** What a fork needs of the page around it. */
export interface Yard {
  api: Pick<Api, 'aftermath' | 'fork'>;
  open: (sessionId: string) => void;
  /** Whether a kernel of this page can go on with the workflow. */
  door: ResumeDoor;
  /** Let that kernel continue a session. */
  resume: (sessionId: string) => Promise<void>;
}

export interface ForkProps {
  yard: Yard;
  sessionId: string;
  at: number;
  way: Way;
  home: Home;
  /** A fork was made. */
  made: () => void;
  close: () => void;
}

interface Made {
  id: string;
  running: boolean;
  problem: string;
}

export function ForkView(props: ForkProps): JSX.Element {
  const { yard, sessionId, way, close } = props;
  const [after, setAfter] = useState<Aftermath | null>(null);
  const [problem, setProblem] = useState('');
  const [typed, setTyped] = useState('');
  const [isolate, setIsolate] = useState(false);
  const [busy, setBusy] = useState(false);
  const [made, setMade] = useState<Made | null>(null);
  const first = useRef<HTMLDivElement>(null);
  useEffect(() => {
    let alive = true;
    setAfter(null);
    setProblem('');
    yard.api.aftermath(sessionId, props.at).then(
      found => alive && setAfter(found),
      (error: unknown) => alive && setProblem(said(error))
    );
    return () => {
      alive = false;
    };
  }, [sessionId, props.at]);
  useEffect(() => first.current?.querySelector<HTMLElement>('textarea, button')?.focus(), [after === null, made === null]);
  const at = after === null ? null : beginsAt(after);
  const direction = directionOf(typed);
  const begin = async (): Promise<void> => {
    if (at === null || direction === null || busy) {
      return;
    }
    setBusy(true);
    setProblem('');
    try {
      const id = await yard.api.fork(sessionId, { at, direction, title: titleOf(direction), isolate });
      props.made();
      const runs = way === 'rerun' && yard.door.why === '';
      const failed = runs ? await yard.resume(id).then(() => '', said) : '';
      setMade({ id, running: runs && failed === '', problem: failed });
    } catch (error) {
      setProblem(said(error));
    } finally {
      setBusy(false);
    }
  };
  const why = busy
    ? 'it is under way'
    : after === null
      ? 'what it means is being looked up'
      : at === null
        ? 'no fork can begin here'
        : direction === null
          ? 'the direction is too long'
          : '';
  return (
    <div
      class="ipa-form"
      role="group"
      aria-label={way === 'fork' ? 'fork' : 'rerun from here'}
      ref={first}
      onKeyDown={event => {
        if (event.key === 'Escape') {
          event.stopPropagation();
          close();
        }
      }}
    >
      {made !== null ? (
        <Result {...props} begun={made} />
      ) : (
        <>
          {after === null ? (
            <p class="ipa-form-text">{problem === '' ? 'looking what a fork here would mean…' : null}</p>
          ) : (
            <Meaning after={after} way={way} />
          )}
          {problem === '' ? null : (
            <p class="ipa-form-text ipa-bad" role="alert">
              {line(problem, 400)}
            </p>
          )}
          {way === 'fork' ? (
            <textarea
              class="ipa-input"
              rows={2}
              placeholder="What should be done differently? (may be empty)"
              aria-label="new direction"
              value={typed}
              data-lm-suppress-shortcuts="true"
              onInput={event => setTyped(event.currentTarget.value)}
              onKeyDown={event => {
                if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
                  event.preventDefault();
                  void begin();
                }
              }}
            />
          ) : null}
          <label class="ipa-check">
            <input
              type="checkbox"
              name="isolate"
              checked={isolate}
              onChange={event => setIsolate(event.currentTarget.checked)}
            />
            in a workspace of its own, with the files as they were then
          </label>
          <div class="ipa-form-buttons">
            <Press
              name="fork-yes"
              label={way === 'fork' ? 'Fork' : yard.door.why === '' ? 'Fork and run' : 'Fork'}
              primary={why === ''}
              why={why}
              onPress={() => void begin()}
            />
            <Press name="fork-no" label="Not now" onPress={close} />
            {way === 'rerun' && yard.door.why !== '' ? <span class="ipa-hint">to run it: {line(yard.door.why, 200)}</span> : null}
          </div>
        </>
      )}
    </div>
  );
}

function Meaning({ after, way }: { after: Aftermath; way: Way }): JSX.Element {
  return (
    <>
      {told(way, after).map(sentence => (
        <p key={sentence} class="ipa-form-text">
          {sentence}
        </p>
      ))}
      <p class="ipa-form-text">{staysOf(after)}</p>
      {after.effects.length === 0 ? null : (
        <ul class="ipa-effects" tabIndex={0} aria-label="what stays">
          {after.effects.map((effect, place) => (
            <li key={place}>{line(effect, 200)}</li>
          ))}
          {after.more === 0 ? null : <li>and {after.more} more</li>}
        </ul>
      )}
    </>
  );
}

function Result(props: ForkProps & { begun: Made }): JSX.Element {
  const { yard, begun: made, home, close } = props;
  const [copied, setCopied] = useState(false);
  const [state, setState] = useState(made);
  const { where, command } = commandOf('resume', made.id, home);
  const go = async (): Promise<void> => {
    const problem = await yard.resume(made.id).then(() => '', said);
    setState({ id: made.id, running: problem === '', problem });
  };
  return (
    <>
      <p class="ipa-form-text" role="status">
        Forked into <b>{made.id}</b>
        {state.running ? '; it runs in the kernel of the notebook.' : '. Nothing of it runs yet.'}
      </p>
      {state.problem === '' ? null : (
        <p class="ipa-form-text ipa-bad" role="alert">
          {block(state.problem.slice(0, 600))}
        </p>
      )}
      {state.running ? null : (
        <p class="ipa-form-text">
          Continue it {where}: <code class="ipa-inline">{command}</code>
        </p>
      )}
      <div class="ipa-form-buttons">
        <Press name="fork-open" label="Open it" primary onPress={() => yard.open(made.id)} />
        {state.running ? null : (
          <>
            <Press name="fork-run" label="Run it here" why={yard.door.why} hint={yard.door.hint} onPress={() => void go()} />
            <Press
              name="fork-copy"
              label={copied ? 'Copied' : 'Copy the command'}
              onPress={() => void navigator.clipboard.writeText(command).then(() => setCopied(true), () => undefined)}
            />
          </>
        )}
        <Press name="fork-close" label="Close" onPress={close} />
      </div>
    </>
  );
}

export function said(error: unknown): string {
  const hint = error instanceof ApiError && error.hint !== '' ? `; ${error.hint}` : '';
  return `${error instanceof Error ? error.message : String(error)}${hint}`;
}
