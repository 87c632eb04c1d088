// Icons of the side panel, the tabs and the files.

import { LabIcon } from "@jupyterlab/ui-components";
import { MODULE } from "../generated/version";

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

// a sheet with three layers on it, each with the bar of its bytes
const FILE_PICTURE = `<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16" viewBox="0 0 16 16">
  <g class="jp-icon3" fill="#616161">
    <path d="M3 1h7l4 4v10H3zM4.2 2.2v11.6h8.6V5.6H9.4V2.2z" fill-rule="evenodd"/>
    <rect x="5.5" y="7" width="6" height="1.4"/>
    <rect x="5.5" y="9.2" width="3.4" height="1.4"/>
    <rect x="5.5" y="11.4" width="5" height="1.4"/>
  </g>
</svg>`;

export const modelFileIcon = new LabIcon({ name: `${MODULE}:model-file`, svgstr: FILE_PICTURE });
