// Line charts and bars as inline SVG, without scripts.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace megalith {

struct ChartSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;
  /// Index into the page's palette (CSS classes c0, c1, ...).
  int color = 0;
  /// Points are marked, for series with few of them.
  bool marked = false;
};

struct ChartOptions {
  std::string title;
  std::string x_label;
  /// The y axis does not begin at the smallest value but at zero.
  bool from_zero = false;
  bool log_y = false;
};

/// An SVG of the series; points that are not finite are left out. Says "no data" when nothing is left.
std::string line_chart(const std::vector<ChartSeries>& series, const ChartOptions& options);

/// Horizontal bars with their share of the sum.
std::string bar_chart(const std::vector<std::pair<std::string, double>>& bars, const std::string& unit);

/// Text for HTML: & < > " escaped, invalid UTF-8 replaced.
std::string escape_html(const std::string& text);

}  // namespace megalith
