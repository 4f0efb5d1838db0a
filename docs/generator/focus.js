// What scrolls sideways can be reached and moved by keyboard: wide tables and long lines of code.
addEventListener("load", () => {
  const watch = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
      else target.removeAttribute("tabindex");
    }
  });
  for (const element of document.querySelectorAll(".md-typeset__scrollwrap, pre > code")) watch.observe(element);
});
