import { useRef } from 'preact/hooks';

/**
 * A value of the state as what has been pressed since the last render left it: keys can come faster than renders, and each has to
 * start from where the one before it went.
 */
export function useLatest<T>(value: T, set: (value: T) => void): readonly [() => T, (value: T) => void] {
  const latest = useRef(value);
  latest.current = value;
  const go = (next: T): void => {
    latest.current = next;
    set(next);
  };
  return [() => latest.current, go];
}
