"""A hook of mkdocs: what a page links to outside of docs/ is named, not linked."""

import posixpath
import re

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#:]+)(#[^)]*)?\)")


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

    return LINK.sub(name, markdown)
