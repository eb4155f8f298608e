// The page's icons: 24-unit line drawings that take the colour of the text around them.

import { html } from "./html.js";

const PATHS = {
  plus: "M12 5v14M5 12h14",
  close: "M6 6l12 12M18 6L6 18",
  menu: "M4 7h16M4 12h16M4 17h16",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14ZM20 20l-4-4",
  theme: "M12 3a9 9 0 1 0 0 18ZM12 3a9 9 0 0 1 0 18",
  bell: "M6 16.5V11a6 6 0 0 1 12 0v5.5l1.5 1.5h-15zM10 20.5h4",
  bellOff: "M4 4l16 16M8.2 6.5A6 6 0 0 1 18 11v3M6 9.5v7L4.5 18H18M10 20.5h4",
  help: "M9.2 9a3 3 0 1 1 4.4 2.7c-1 .5-1.6 1.2-1.6 2.3M12 17.5h.01",
  eye: "M2.5 12S6 5.5 12 5.5 21.5 12 21.5 12 18 18.5 12 18.5 2.5 12 2.5 12ZM12 15a3 3 0 1 0 0-6 3 3 0 0 0 0 6Z",
  eyeOff: "M4 4l16 16M9.9 5.8A9 9 0 0 1 12 5.5c6 0 9.5 6.5 9.5 6.5a16 16 0 0 1-2.7 3.4M6.4 7.4A15.6 15.6 0 0 0 2.5 12S6 18.5 12 18.5a9 9 0 0 0 4-1M10 10a3 3 0 0 0 4 4",
  copy: "M9 9h10v11H9zM5 15V4h10",
  check: "M5 12.5l4.5 4.5L19 7.5",
  cross: "M7 7l10 10M17 7L7 17",
  resume: "M5 6v12M10 6l9 6-9 6z",
  fork: "M7 4v16M7 14c0-4 10-2 10-8M14 9l3-3 3 3",
  retry: "M20 11a8 8 0 1 0-2.3 6.3M20 5v6h-6",
  down: "M12 5v14M6 13l6 6 6-6",
  chevron: "M7 10l5 5 5-5",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M7 7h10v10H7z",
  pin: "M9 4h6l-1 6 3 3v2H7v-2l3-3zM12 15v5",
  edit: "M4 20h4L19 9l-4-4L4 16zM13 7l4 4",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13M10.5 11v5M13.5 11v5",
  slash: "M15 5L9 19",
  wrench: "M14.5 6.5a4 4 0 0 1 5-1l-2.6 2.6 1.5 1.5L21 7a4 4 0 0 1-5.5 5L8 19.5a2.1 2.1 0 0 1-3-3L12.5 9a4 4 0 0 1 2-2.5Z",
  clock: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18ZM12 7v5l3.5 2",
  alert: "M12 4L2.8 20h18.4zM12 10v4.5M12 17.3h.01",
  cloudOff: "M4 4l16 16M7.5 9.2A4.5 4.5 0 0 0 7 18h10M19.5 16.8A4 4 0 0 0 17 10a5.5 5.5 0 0 0-6.5-4.3",
  logOut: "M13 4H5v16h8M10 12h11M17 8l4 4-4 4",
  note: "M6 3.5h8l4 4v13H6zM14 3.5v4h4M9 12h6M9 16h6",
  prompt: "M5 7l5 5-5 5M12.5 17H19",
  restore: "M4 11a8 8 0 1 1 2.3 6.3M4 5v6h6",
  compare: "M4 7.5h14M14.5 4L18 7.5 14.5 11M20 16.5H6M9.5 13L6 16.5 9.5 20",
  camera: "M4 8h4l1.5-2.5h5L16 8h4v11H4zM12 16.2a3 3 0 1 0 0-6 3 3 0 0 0 0 6Z",
  hourglass: "M7 3h10M7 21h10M8 3v4l4 5-4 5v4M16 3v4l-4 5 4 5v4",
  filter: "M4 6h16M7 12h10M10 18h4",
  upload: "M12 16V5M7 9.5L12 4.5l5 5M4 19.5h16",
  download: "M12 4v11M7 10.5l5 5 5-5M4 19.5h16",
  thought: "M9 18h6M10 21h4M9 15.5a6.5 6.5 0 1 1 6 0V18H9z",
  picture: "M4 5h16v14H4zM4 16l4.5-4.5 4 4 2.5-2.5 5 5M15.5 9.5h.01",
  sliders: "M4 7h10M18 7h2M4 17h2M10 17h10M16 9.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5ZM8 19.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5Z",
  chip: "M7 7h10v10H7zM10 3v4M14 3v4M10 17v4M14 17v4M3 10h4M3 14h4M17 10h4M17 14h4",
};

export const Icon = ({ name }) =>
  html`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false"><path d=${PATHS[name]} /></svg>`;

/** A button that shows an icon; `label` is its name for everyone who doesn't see it. */
export const IconButton = ({ name, label, class: extra = "", ...rest }) =>
  html`<button type="button" class=${`icon-button ${extra}`} aria-label=${label} title=${label} ...${rest}><${Icon} name=${name} /></button>`;
