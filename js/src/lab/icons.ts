// The icon of the panel, the tabs and the files.

import { LabIcon } from "@jupyterlab/ui-components";
import { MODULE } from "./version";

// three linked cards, in the color that JupyterLab's icons have
const PICTURE = `<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16" viewBox="0 0 16 16">
  <g class="jp-icon3" fill="#616161">
    <rect x="1" y="2" width="6" height="4" rx="1"/>
    <rect x="9" y="6" width="6" height="4" rx="1"/>
    <rect x="1" y="10" width="6" height="4" rx="1"/>
    <path d="M4 6h1v1.5h4v1H5V10H4z"/>
  </g>
</svg>`;

export const graphIcon = new LabIcon({ name: `${MODULE}:graph`, svgstr: PICTURE });
