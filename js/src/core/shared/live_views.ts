// The views of widgets on this page, for hosts that ask them something.

export interface LiveView {
  readonly el: HTMLElement;
  /** Whether its kernel has put newer pictures of all widgets into their outputs. */
  renewPictures(): Promise<boolean>;
}

export const liveViews = new Set<LiveView>();
