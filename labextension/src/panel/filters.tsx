/** What the list may be narrowed to: what occurs in it. */
import type { JSX } from 'preact';
import { useMemo } from 'preact/hooks';

import * as text from '../text.js';
import { COSTS, choicesOf, type Filter } from './groups.js';
import type { RowStore } from './rows.js';

export function Filters(props: { store: RowStore; version: number; filter: Filter; setFilter: (filter: Filter) => void }): JSX.Element {
  const { store, filter, setFilter } = props;
  const choices = useMemo(() => choicesOf(store.rows.values()), [props.version]);
  const select = (name: 'state' | 'notebook' | 'model', any: string, values: readonly string[], shown = (value: string) => value): JSX.Element => (
    <select aria-label={name} value={filter[name]} onChange={event => setFilter({ ...filter, [name]: event.currentTarget.value })}>
      <option value="">{any}</option>
      {values.map(value => (
        <option key={value} value={value}>
          {text.line(shown(value), 60)}
        </option>
      ))}
    </select>
  );
  return (
    <div class="ipa-filters ipa-sort" role="group" aria-label="filter">
      {select('state', 'any state', choices.states)}
      {select('notebook', 'any notebook', choices.notebooks, text.baseName)}
      {select('model', 'any model', choices.models)}
      <select aria-label="cost" value={filter.cost} onChange={event => setFilter({ ...filter, cost: Number(event.currentTarget.value) })}>
        <option value={0}>any cost</option>
        {COSTS.map(cost => (
          <option key={cost} value={cost}>
            from {text.money(cost)}
          </option>
        ))}
      </select>
    </div>
  );
}
