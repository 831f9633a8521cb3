// SPDX-License-Identifier: Apache-2.0
// The XML that hwloc and NCCL write: elements, attributes and text. No DTD is read, no entity but the five of XML and
// characters by number is known, nothing is fetched. Size, depth and number of elements are bounded.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mm::placement {

struct XmlElement {
  std::string name;
  std::vector<std::pair<std::string, std::string>> attributes;
  std::vector<XmlElement> children;
  std::string text;  // of this element alone

  // The attribute's value, or the default.
  std::string_view get(std::string_view attribute, std::string_view otherwise = "") const;
};

// The root. Throws a usage Error "NAME:LINE: reason".
XmlElement parse_xml(std::string_view text, const std::string& name);
// Plain XML again: no comments, no blanks between elements.
std::string format_xml(const XmlElement& root);

}  // namespace mm::placement
