/** A task that goes round and comes back: the mark of the panel. */
import { LabIcon } from '@jupyterlab/ui-components';

export const taskIcon = new LabIcon({
  name: 'ipyagent:task',
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" width="16">
  <g fill="none" stroke-width="2" stroke-linecap="round" stroke-linejoin="round">
    <path class="jp-icon3" stroke="#616161" d="M20 12a8 8 0 1 1-2.6-5.9"/>
    <path class="jp-icon3" stroke="#616161" d="M20.2 3.2v4.2H16"/>
    <path class="jp-icon3" stroke="#616161" d="m8.6 12.2 2.4 2.4 4.4-4.8"/>
  </g></svg>`
});
