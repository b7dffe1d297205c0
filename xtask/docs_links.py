"""Hooks of mkdocs: what a page links to outside of docs/ is named, not linked; fenced blocks are
rendered, or else the site has a mistake."""

import logging
import posixpath
import re

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#:]+)(#[^)]*)?\)")

# The tests tell blocks of one language apart by a second word, which Markdown does not know.
SECOND_WORD = re.compile(r"^(```[a-z]+) [a-z ]+$", re.MULTILINE)

log = logging.getLogger("mkdocs.hooks.docs_links")


def on_page_markdown(markdown, page, config, files):
    known = {file.src_uri for file in files}
    folder = posixpath.dirname(page.file.src_uri)

    def name(link):
        target = posixpath.normpath(posixpath.join(folder, link[2]))
        if target in known:
            return link[0]
        inside = posixpath.join(target, "README.md")
        if inside in known:
            return f"[{link[1]}]({posixpath.relpath(inside, folder or '.')})"
        path = posixpath.normpath(posixpath.join("docs", target))
        return f"{link[1]} (`{path}`)" if path != link[1] else f"`{path}`"

    return LINK.sub(name, SECOND_WORD.sub(r"\1", markdown))


def on_page_content(html, page, config, files):
    """A fence that is not understood stays in the text. A warning ends a strict build."""
    if "```" in html:
        log.warning("a fenced block of %s is not rendered", page.file.src_uri)
    return html
