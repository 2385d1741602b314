// Counts the lines of a file, character by character. It ends by a timer if it hangs.
#include <cstdio>
#include <string>
#include <unistd.h>

namespace
{
std::string next_line(std::FILE *file)
{
    std::string line;
    char c;
    while ((c = static_cast<char>(std::getc(file))) != EOF && c != '\n') // FAULT char and EOF: 255 is not -1
        if (line.size() < 80)
            line += c;
    return line;
}
} // namespace

int main()
{
    std::FILE *file = std::tmpfile();
    std::fputs("one\ntwo\n", file);
    std::rewind(file);
    alarm(1);
    int lines = 0;
    while (!next_line(file).empty())
        lines++;
    std::printf("%d lines\n", lines);
    return lines != 2;
}
