// A handle between two panes: dragged with the pointer, moved with the arrow keys.

import { type Disposer, el, listen, setAttribute } from "./dom";

const STEP = 0.05;

export interface HandleActions {
  /** Where the shares are measured, and from which of its ends. */
  box(): DOMRect;
  isFromEnd?: boolean;
  share(): number;
  /** Whoever is asked keeps it within bounds. */
  move(share: number): void;
  enter(): void; // the key Enter, and a double click
  end(): void; // of a drag, and after each key
}

/** `bounds`: the least and the most share that it reaches. */
export function paneHandle(
  className: string,
  label: string,
  isRow: boolean,
  bounds: readonly [number, number],
  actions: HandleActions
): { element: HTMLElement; show: (share: number, most?: number) => void; dispose: Disposer } {
  const element = el("div", className);
  element.tabIndex = 0;
  const attributes = {
    role: "separator",
    "aria-orientation": isRow ? "horizontal" : "vertical",
    "aria-label": label,
    "aria-valuemin": Math.round(bounds[0] * 100)
  };
  for (const [name, value] of Object.entries(attributes)) setAttribute(element, name, value);
  const enter = () => {
    actions.enter();
    actions.end();
  };
  const press = (event: KeyboardEvent) => {
    const grow = actions.isFromEnd ? -STEP : STEP;
    const [less, more] = isRow ? ["ArrowUp", "ArrowDown"] : ["ArrowLeft", "ArrowRight"];
    const wanted: Record<string, number> = {
      [less]: actions.share() - grow,
      [more]: actions.share() + grow,
      Home: bounds[0],
      End: bounds[1]
    };
    if (!(event.key in wanted) && event.key !== "Enter") return;
    event.preventDefault();
    event.stopPropagation();
    if (event.key === "Enter") return enter();
    actions.move(wanted[event.key]);
    actions.end();
  };
  const drag = (event: PointerEvent) => {
    event.preventDefault();
    element.focus();
    element.setPointerCapture(event.pointerId);
    const { top, left, width, height } = actions.box();
    const follow = ({ clientX, clientY }: PointerEvent) => {
      const share = isRow ? (clientY - top) / height : (clientX - left) / width;
      actions.move(actions.isFromEnd ? 1 - share : share);
    };
    const stop = [
      listen(element, "pointermove", follow),
      listen(element, "pointerup", () => end()),
      listen(element, "pointercancel", () => end())
    ];
    const end = () => {
      stop.forEach(dispose => dispose());
      actions.end();
    };
  };
  const disposers = [
    listen(element, "pointerdown", drag),
    listen(element, "keydown", press),
    listen(element, "dblclick", enter)
  ];
  return {
    element,
    show: (share, most = bounds[1]) => {
      setAttribute(element, "aria-valuemax", Math.round(most * 100));
      setAttribute(element, "aria-valuenow", Math.round(share * 100));
    },
    dispose: () => disposers.forEach(dispose => dispose())
  };
}
