// A widget of a notebook in a tab of the main area: a second view of the same live model.

import type { ILabShell } from "@jupyterlab/application";
import { MainAreaWidget } from "@jupyterlab/apputils";
import { UUID } from "@lumino/coreutils";
import { Panel, type Widget } from "@lumino/widgets";
import { setTabHost, type TabRequest } from "../core/shared/tab_host";
import { graphIcon } from "./icons";

/** The part of a widget's view that a tab needs. */
interface TabView {
  readonly el: HTMLElement;
  readonly luminoWidget: Widget;
}

/** From now on every view offers to be opened in a tab. Such tabs go with their model, so a reload does not bring them back. */
export function offerTabs(shell: ILabShell): void {
  setTabHost({ open: request => void open(shell, request) });
}

async function open(shell: ILabShell, { title, createView }: TabRequest): Promise<void> {
  const view = (await createView()) as TabView;
  const content = new Panel();
  const tab = new MainAreaWidget({ content });
  tab.id = `mkg-view-${UUID.uuid4()}`;
  tab.addClass("mkg-object-tab");
  tab.title.label = title;
  tab.title.caption = title;
  tab.title.icon = graphIcon;
  tab.title.closable = true;
  tab.toolbar.hide(); // the view has its own
  content.addClass("mkg-view-tab");
  view.el.classList.add("mkg-is-tab");
  // a model that goes takes its views along
  view.luminoWidget.disposed.connect(() => tab.dispose());
  content.addWidget(view.luminoWidget);
  shell.add(tab, "main");
  shell.activateById(tab.id);
}
