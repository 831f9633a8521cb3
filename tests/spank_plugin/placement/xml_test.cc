// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/placement/xml.h"

#include <gtest/gtest.h>

#include <random>

#include "common/error.h"

namespace mm::placement {
namespace {

TEST(Xml, ReadsElementsAttributesAndText) {
  const XmlElement root = parse_xml(
      "\xef\xbb\xbf<?xml version='1.0'?>\n<!DOCTYPE t SYSTEM \"t.dtd\"><!-- a --><t a='1' b=\"&lt;&#228;&#x20AC;\"> <u/>x<!-- "
      "y -->"
      "<![CDATA[<z>]]></t>\n",
      "f");
  EXPECT_EQ(root.get("a"), "1");
  EXPECT_EQ(root.get("b"), "<\xc3\xa4\xe2\x82\xac");
  EXPECT_EQ(root.get("c", "no"), "no");
  ASSERT_EQ(root.children.size(), 1U);
  EXPECT_EQ(root.children[0].name, "u");
  EXPECT_EQ(root.text, " x<z>");
  EXPECT_EQ(format_xml(parse_xml(format_xml(root), "again")), format_xml(root));
}

std::string why(const std::string& text) {
  try {
    parse_xml(text, "f.xml");
    return "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.status, exit_status::usage);
    return e.what();
  }
}

TEST(Xml, NamesThePlaceOfAMistake) {
  EXPECT_EQ(why(""), "f.xml:1: there is no element");
  EXPECT_EQ(why("<a>\n<b>\n</a>"), "f.xml:3: </a> ends <b>");
  EXPECT_EQ(why("<a x='1' x='2'/>"), "f.xml:1: attribute 'x' is there twice");
  EXPECT_EQ(why("<a/>\n<b/>"), "f.xml:2: text after the end of the root element");
  EXPECT_NE(why("<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>").find("declarations"), std::string::npos);
  EXPECT_NE(why("<a>&b;</a>").find("unknown entity 'b'"), std::string::npos);
  EXPECT_NE(why("<a").find("does not end"), std::string::npos);
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "<a>";
  EXPECT_NE(why(deep).find("deep"), std::string::npos);
}

// Whatever is done to a document, it is read or refused, and what is read is stable.
TEST(Xml, SurvivesDamage) {
  const std::string good =
      "<?xml version=\"1.0\"?><topology version=\"2.0\"><object type=\"Machine\" cpuset=\"0x3\"><info name=\"a\" "
      "value=\"&amp;b\"/>"
      "<![CDATA[c]]><!-- d --></object><distances2 kind=\"5\"><u64values length=\"3\">10 20 "
      "</u64values></distances2></topology>";
  std::mt19937 random(7);
  int read = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = good;
    for (unsigned k = 0; k <= random() % 4; ++k) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, 1 + random() % 20);
          break;
        default:
          text.insert(at, good.substr(random() % good.size(), random() % 20));
          break;
      }
      if (text.empty()) text = "<";
    }
    try {
      const std::string once = format_xml(parse_xml(text, "f"));
      EXPECT_EQ(format_xml(parse_xml(once, "f")), once);
      ++read;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(read, 1000);
}

}  // namespace
}  // namespace mm::placement
