// jsdom has no media queries; the chart library asks for one as soon as it is imported, so this is imported before it.

globalThis.matchMedia ??= (media: string) =>
  ({ media, matches: false, addEventListener: () => {}, removeEventListener: () => {} }) as unknown as MediaQueryList;
