// Work for the next animation frame: each piece once, however often it is asked for.

export class Frames {
  private readonly waiting = new Set<() => void>();
  private frame = 0;

  add(act: () => void): void {
    this.waiting.add(act);
    this.frame ||= requestAnimationFrame(() => this.flush());
  }

  flush(): void {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const due = [...this.waiting];
    this.waiting.clear();
    for (const act of due) act();
  }

  dispose(): void {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.waiting.clear();
  }
}
