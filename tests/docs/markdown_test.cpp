// What README.md and docs/ say about code is true: C++ blocks are code that other tests of this
// folder compile and run, files that are named exist, and so does what docs/tf_map.md maps to.

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

const fs::path kRoot = fs::path(COHORT_TEST_DATA) / ".." / "..";

std::string read(const fs::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// README.md, CHANGELOG.md and everything in docs/.
std::vector<fs::path> documents() {
  std::vector<fs::path> found{kRoot / "README.md", kRoot / "CHANGELOG.md"};
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / "docs")) {
    if (entry.path().extension() == ".md") found.push_back(entry.path());
  }
  return found;
}

/// Code without its white space: a document may break and indent its lines in its own way.
std::string squeezed(std::string text) {
  std::erase_if(text, [](unsigned char c) { return std::isspace(c); });
  return text;
}

struct Block {
  std::string language, text;
  std::size_t line;
};

std::vector<Block> blocks_of(const std::string& document) {
  std::vector<Block> blocks;
  bool inside = false;
  const auto lines = lines_of(document);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].starts_with("```")) {
      if (!inside) blocks.push_back({lines[i].substr(3), "", i + 1});
      inside = !inside;
    } else if (inside) {
      blocks.back().text += lines[i] + '\n';
    }
  }
  EXPECT_FALSE(inside) << "a block without an end";
  return blocks;
}

TEST(Documents, HaveCodeThatIsCompiledAndRun) {
  std::string tested;
  for (const auto& entry : fs::directory_iterator(kRoot / "tests" / "docs")) {
    if (entry.path().extension() == ".cpp") tested += squeezed(read(entry.path()));
  }
  int found = 0;
  for (const fs::path& path : documents()) {
    for (const Block& block : blocks_of(read(path))) {
      EXPECT_THAT((std::vector<std::string>{"cpp", "sh", "cmake", ""}),
                  testing::Contains(block.language))
          << path << ':' << block.line;
      if (block.language != "cpp") continue;
      ++found;
      EXPECT_NE(tested.find(squeezed(block.text)), std::string::npos)
          << path << ':' << block.line << ": the block is not in tests/docs/*.cpp";
    }
  }
  EXPECT_GE(found, 10);
}

/// The document without its blocks of code, in which a lambda looks like a link.
std::string prose_of(const std::string& document) {
  std::string prose;
  bool inside = false;
  for (const std::string& line : lines_of(document)) {
    if (line.starts_with("```")) inside = !inside;
    if (!inside) prose += line + '\n';
  }
  return prose;
}

TEST(Documents, LinkToFilesThatExist) {
  const std::regex link(R"(\]\(([^)#:]+)(#[^)]*)?\))");
  for (const fs::path& path : documents()) {
    const std::string text = prose_of(read(path));
    for (std::sregex_iterator match(text.begin(), text.end(), link), end; match != end; ++match) {
      EXPECT_TRUE(fs::exists(path.parent_path() / match->str(1))) << path << ": " << match->str(1);
    }
  }
}

/// The cells of a table's row, without the white space and backquotes around them.
std::vector<std::string> cells_of(const std::string& row) {
  std::vector<std::string> cells;
  std::istringstream stream(row.substr(1));
  for (std::string cell; std::getline(stream, cell, '|');) {
    const auto first = cell.find_first_not_of(" `");
    const auto last = cell.find_last_not_of(" `");
    cells.push_back(first == std::string::npos ? "" : cell.substr(first, last - first + 1));
  }
  return cells;
}

std::vector<std::vector<std::string>> rows_of_map() {
  std::vector<std::vector<std::string>> rows;
  for (const std::string& line : lines_of(read(kRoot / "docs" / "tf_map.md"))) {
    if (line.starts_with("| `")) rows.push_back(cells_of(line));
  }
  return rows;
}

// A row is | TensorFlow's name | Cohort's name | header or — | remark |.
TEST(TfMap, NamesHeadersThatHaveTheName) {
  int mapped = 0;
  for (const auto& row : rows_of_map()) {
    ASSERT_EQ(row.size(), 4u) << row[0];
    if (row[2] == "—") {
      EXPECT_FALSE(row[3].empty()) << row[0] << ": says neither where it is nor why not";
      continue;
    }
    ++mapped;
    const fs::path header = kRoot / row[2];
    ASSERT_TRUE(fs::is_regular_file(header)) << row[0] << ": " << row[2];
    // "Strategy::run", "compat::unwrap": the last part is what the header has to contain.
    const auto colon = row[1].rfind(':');
    const std::string name = colon == std::string::npos ? row[1] : row[1].substr(colon + 1);
    EXPECT_TRUE(std::regex_search(read(header), std::regex("\\b" + name + "\\b")))
        << row[0] << ": " << row[2] << " has no " << name;
  }
  EXPECT_GE(mapped, 50);
}

// tf_names.txt lists the names of the reference pages, one a line.
TEST(TfMap, IsComplete) {
  std::vector<std::string> mapped;
  for (const auto& row : rows_of_map()) mapped.push_back(row[0]);
  int names = 0;
  for (const std::string& name : lines_of(read(kRoot / "tests" / "docs" / "tf_names.txt"))) {
    if (name.empty() || name.starts_with('#')) continue;
    ++names;
    EXPECT_THAT(mapped, testing::Contains(name));
  }
  EXPECT_GE(names, 90);
}

}  // namespace
