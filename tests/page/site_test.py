#!/usr/bin/env python3
"""Opens the site of `./dev docs` in a headless Chromium, follows its links, and searches.

    site_test.py FOLDER

The test needs Debian's chromium, chromium-driver and python3-selenium. `./dev docs --check` installs them and runs it.
"""

import functools
import html.parser
import http.server
import pathlib
import sys
import threading
import time
import unittest
import urllib.parse

from page_test import browser
from selenium.webdriver.common.by import By

SITE = None  # the folder, from the command line
PAGES_MIN = 100


class Server(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class Page(html.parser.HTMLParser):
    """The links and anchors of a page."""

    def __init__(self, path):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.anchors.add(attributes.get("id"))
        self.links += [attributes[name] for name in ("href", "src") if attributes.get(name) is not None]


class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        handler = functools.partial(Server, directory=SITE)
        cls.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()
        cls.address = f"http://127.0.0.1:{cls.server.server_port}/"
        cls.driver = browser()

    @classmethod
    def tearDownClass(cls):
        cls.driver.quit()
        cls.server.shutdown()

    def test_no_link_is_dead(self):
        pages = {path.resolve(): Page(path) for path in SITE.rglob("*.html")}
        self.assertGreater(len(pages), PAGES_MIN)
        dead = []
        for path, page in pages.items():
            for link in page.links:
                url = urllib.parse.urlsplit(link)
                if url.scheme or url.netloc or path.name == "404.html":  # whose links begin at the server's root
                    continue
                target = (path.parent / urllib.parse.unquote(url.path)).resolve() if url.path else path
                if target.is_dir():
                    target /= "index.html"
                anchor = urllib.parse.unquote(url.fragment)
                if not target.exists() or (anchor and target in pages and anchor not in pages[target].anchors):
                    dead.append(f"{path.relative_to(SITE)}: {link}")
        self.assertEqual([], dead)

    def test_the_start_page_loads_nothing_from_elsewhere(self):
        self.driver.get(self.address)
        self.assertIn("Tulle", self.driver.title)
        self.assertIn("RDMA in software", self.driver.find_element(By.TAG_NAME, "article").text)
        loaded = self.driver.execute_script("return performance.getEntriesByType('resource').map(each => each.name)")
        self.assertEqual([], [url for url in loaded if not url.startswith(self.address)])
        self.assertEqual([], [entry for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"])

    def test_the_search_finds_a_page(self):
        self.driver.get(self.address)
        self.driver.find_element(By.CSS_SELECTOR, ".md-search__input").send_keys("M_Key")
        for _ in range(100):
            results = self.driver.find_elements(By.CSS_SELECTOR, ".md-search-result__link")
            if results:
                break
            time.sleep(0.1)
        self.assertTrue(results)
        self.assertTrue(any("fabric" in result.get_attribute("href") for result in results))


if __name__ == "__main__":
    SITE = pathlib.Path(sys.argv.pop()).resolve()
    unittest.main()
